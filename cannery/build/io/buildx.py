"""`docker buildx bake` as a child process: its events to a view and a log, its failure to one of our errors.

BuildKit clips a step's output at 2 MiB, or 200 KiB/s, unless the *daemon* (dockerd or buildkitd, not this client) was
started with BUILDKIT_STEP_LOG_MAX_SIZE=-1 and BUILDKIT_STEP_LOG_MAX_SPEED=-1 (Docker 26.1.5: 10 MB then arrive whole).
"""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cannery.build.failure import Context, failure, needs_newer_buildx
from cannery.build.io.log import BuildLog
from cannery.build.progress import BuildState, apply, close, counts, settled
from cannery.build.rawjson import read_line
from cannery.build.retry import default_target, retry_command
from cannery.errors import UsageError
from cannery.render.bake_file import NO_QUESTION, check_bake
from cannery.util.io.child import cancel, end, lines, start, terminated_as_interrupt
from cannery.util.redact import redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_BAKE_FILE = "docker-bake.json"


class View(Protocol):
    """What shows a build (edge.progress_view makes them)."""

    def update(self, state: BuildState) -> None:
        """Show `state`; called for every event, and every second without one."""

    def finish(self, state: BuildState) -> None:
        """Show the last state and leave the terminal as it was; called once, also after a failure."""


@dataclass(frozen=True)
class BuiltImage:
    """What bake's metadata say of one target. `config_digest` is "" with the containerd image store (it gives none)."""

    target: str
    names: tuple[str, ...]
    digest: str
    config_digest: str

    @property
    def id(self) -> str:
        """The id under which the engine knows the image: the config's digest, or the manifest's with containerd."""
        return self.config_digest or self.digest


@dataclass(frozen=True)
class BakeResult:
    """A finished bake. `clipped` is the limit at which BuildKit dropped output, or ""."""

    images: tuple[BuiltImage, ...]
    cached: int
    total: int
    seconds: float
    log: Path
    clipped: str = ""


def bake(  # noqa: PLR0913 - one request to buildx
    engine_command: tuple[str, ...],
    env: Mapping[str, str],
    folder: Path,
    *,
    targets: tuple[str, ...],
    log: Path,
    view: View,
    overrides: tuple[str, ...] = (),
    builder: str | None = None,
    secrets: tuple[str, ...] = (),
) -> BakeResult:
    """Build `targets` of the bake file in `folder` (all of its default group when empty) and wait for the end.

    `engine_command` starts buildx, as ("docker", "buildx"); `env` is its whole environment; `overrides` are values of
    `--set`; `secrets` are values that must appear neither in `log` nor on the screen.

    Raises BuildFailedError (a step failed), NetworkError (the registry), UnableError (no buildx, buildx too old, disk
    full, engine away, QEMU missing), UsageError (the bake file). SIGINT and SIGTERM cancel the build, then
    KeyboardInterrupt is raised.
    """
    document, env = _read_bake(folder), {**env, **NO_QUESTION}
    redact = redactor(secrets)
    # Beside the log, and not in a temporary folder: what a killed run leaves is the next one's to overwrite.
    metadata = log.with_name("metadata.json").absolute()
    with BuildLog(log) as log_file, _only_for_now(metadata):
        command = [*engine_command, "bake", "-f", _BAKE_FILE, "--progress=rawjson", "--metadata-file", str(metadata)]
        command += ["--builder", builder] if builder else []
        command += [word for override in overrides for word in ("--set", override)]
        state, status = _run([*command, *targets], env, folder, view=view, log=log_file, redact=redact)
        log_file.note(f"buildx ended with status {status}")
        images = _images(metadata) if status == 0 else ()
    if status == 0 and not needs_newer_buildx(state):
        final = settled(state)
        cached, total = counts(final.steps)
        return BakeResult(images, cached, total, state.seconds, log, state.clipped)
    retry = ""
    if state.failed and state.failed.name.number:
        name = state.failed.name
        target = name.target or default_target(document, targets)
        retry = retry_command(
            engine_command, env, str(folder), document, target=target, stage=name.stage, builder=builder
        )
    raise failure(state, Context(str(log), redact(retry), _space(state, status)))


@contextmanager
def _only_for_now(path: Path) -> Iterator[None]:
    """Let no file be at `path` before and after, nor what a killed buildx writes before it gives it that name."""
    _remove(path)
    try:
        yield
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    for left in (path, *path.parent.glob(f".tmp-{path.name}*")):
        left.unlink(missing_ok=True)


def _run(  # noqa: PLR0913 - the parts of one running build
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    view: View,
    log: BuildLog,
    redact: Callable[[str], str],
) -> tuple[BuildState, int]:
    state, pending = BuildState(), ""
    with terminated_as_interrupt():
        process = start(command, env, folder)
        try:
            for line in lines(process):
                if line is None:
                    view.update(state)
                    continue
                pending, events = read_line(pending, line)
                for event in events:
                    state = apply(state, event, redact)
                    log.write(state)
                    view.update(state)
                if needs_newer_buildx(state):
                    cancel(process)
                    break
            state = close(state, redact)
            log.write(state)
            return state, process.wait()
        except KeyboardInterrupt:
            log.note("interrupted: the build is being cancelled")
            cancel(process)
            raise
        finally:
            end(process)
            view.finish(state)


def _read_bake(folder: Path) -> dict[str, Any]:
    path = folder / _BAKE_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError("no bake file", where=str(path), hint="`build.py render` writes it") from error
    except ValueError as error:
        raise UsageError(f"not JSON: {error}", where=str(path), hint="`build.py render` writes it anew") from error
    return check_bake(document, str(path))


def _images(path: Path) -> tuple[BuiltImage, ...]:
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()  # nothing was exported (output type=cacheonly)
    entries = {name: data for name, data in metadata.items() if isinstance(data, dict)}
    return tuple(
        BuiltImage(
            target=name,
            names=tuple(part for part in str(data.get("image.name", "")).split(",") if part),
            digest=str(data.get("containerimage.digest", "")),
            config_digest=str(data.get("containerimage.config.digest", "")),
        )
        for name, data in sorted(entries.items())
        if "containerimage.digest" in data
    )


def _space(state: BuildState, status: int) -> str:
    """Free and total space where the engine's error says it could not write, when that is on this machine."""
    words = f"{state.failed.error if state.failed else ''} {' '.join(state.other)}".split()
    paths = [Path(word.rstrip(":,")) for word in words if word.startswith("/")] if status else []
    for path in paths:
        folder = next((parent for parent in path.parents if parent != Path("/") and parent.is_dir()), None)
        if folder is not None:
            usage = shutil.disk_usage(folder)
            return f"{usage.free / 1e9:.2f} of {usage.total / 1e9:.1f} GB free at {folder}"
    return ""
