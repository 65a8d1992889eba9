"""`docker buildx bake` as a child process: its events to a view and a log, its failure to one of our errors.

BuildKit clips a step's output at 2 MiB, or 200 KiB/s, unless the *daemon* (dockerd or buildkitd, not this client) was
started with BUILDKIT_STEP_LOG_MAX_SIZE=-1 and BUILDKIT_STEP_LOG_MAX_SPEED=-1 (Docker 26.1.5: 10 MB then arrive whole).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from cannery.build.failure import Details, failure, needs_newer_buildx
from cannery.build.io.secrets import NO_SECRETS, Secrets
from cannery.build.progress import BuildState, apply, close
from cannery.build.rawjson import read_line
from cannery.build.retry import retry_command
from cannery.errors import UsageError
from cannery.render.render import NO_QUESTION, check_bake
from cannery.util.io.process import cancel, end, lines, start, terminated_as_interrupt
from cannery.util.urls import redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_BAKE_FILE = "docker-bake.json"


class View(Protocol):
    """What shows a build (`cannery.build.io.view` makes them)."""

    def update(self, state: BuildState) -> None:
        """Show `state`; called for every event, and every second without one."""

    def finish(self, state: BuildState) -> None:
        """Show the last state and leave the terminal as it was; called once, also after a failure."""


@dataclass(frozen=True)
class BakeResult:
    """A finished bake."""

    cached: int
    total: int
    seconds: float
    log: Path


def bake(  # noqa: PLR0913 - one request to buildx
    engine_command: tuple[str, ...],
    env: Mapping[str, str],
    folder: Path,
    *,
    target: str = "image",
    log: Path,
    view: Callable[[], View],
    overrides: tuple[str, ...] = (),
    builder: str | None = None,
    secrets: Secrets = NO_SECRETS,
) -> BakeResult:
    """Build `target` of the bake file in `folder` and wait for the end.

    `engine_command` starts buildx, as ("docker", "buildx"); `env` is its whole environment; `overrides` are values of
    `--set`; `secrets` are values that must appear neither in `log` nor on the screen. `view` makes a view.

    A build that begins while a failed one ends joins its steps, and fails as it did: it is then begun once more.

    Raises BuildFailedError (a step failed), NetworkError (the registry), UnableError (no buildx, buildx too old, disk
    full, engine away, QEMU missing), UsageError (the bake file). SIGINT and SIGTERM cancel the build, then
    KeyboardInterrupt is raised.
    """
    document, env = _read_bake(folder), {**env, **NO_QUESTION}
    redact = redactor(secrets.values)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8", errors="replace") as log_file:
        command = [*engine_command, "bake", "-f", _BAKE_FILE, "--progress=rawjson"]
        command += ["--builder", builder] if builder else []
        command += [word for override in overrides for word in ("--set", override)]
        run = partial(_run, [*command, target], env, folder, log=log_file, redact=redact)
        state, status = run(view=view())
        if status and state.joined:
            log_file.write(f"{state.seconds:8.2f} [cannery] it joined a build that had failed: once more\n")
            state, status = run(view=view())
        log_file.write(f"{state.seconds:8.2f} [cannery] buildx ended with status {status}\n")
    if status == 0 and not needs_newer_buildx(state):
        cached, _, total = state.counts
        return BakeResult(cached, total, state.seconds, log)
    retry = ""
    if state.failed and state.failed.name.is_step:
        stage = state.failed.name.stage
        lasting = {name: value for name, value in env.items() if name not in secrets.passing}
        retry = retry_command(
            engine_command, lasting, str(folder), document, target=target, stage=stage, builder=builder
        )
    raise failure(state, Details(str(log), redact(retry), _space(state, status)))


def _run(  # noqa: PLR0913 - the parts of one running build
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    view: View,
    log: TextIO,
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
                    write_log(log, state)
                    view.update(state)
                if needs_newer_buildx(state):
                    cancel(process)
                    break
            state = close(state, redact)
            write_log(log, state)
            return state, process.wait()
        except KeyboardInterrupt:
            log.write(f"{state.seconds:8.2f} [cannery] interrupted: the build is being cancelled\n")
            cancel(process)
            raise
        finally:
            end(process)
            view.finish(state)


def write_log(log: TextIO, state: BuildState) -> None:
    """Write the lines that the last event added, and flush: a killed run leaves a log up to its last moment."""
    if state.fresh:
        log.write("".join(f"{state.seconds:8.2f} [{stage}] {line}\n" for stage, line in state.fresh))
        log.flush()


def _read_bake(folder: Path) -> dict[str, Any]:
    path = folder / _BAKE_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError("no bake file", where=str(path), hint="`build.py render` writes it") from error
    except ValueError as error:
        raise UsageError(f"not JSON: {error}", where=str(path), hint="`build.py render` writes it again") from error
    return check_bake(document, str(path))


def _space(state: BuildState, status: int) -> str:
    """Free and total space where the engine could not write, by its error, when that is on this machine."""
    words = f"{state.failed.error if state.failed else ''} {' '.join(state.other)}".split()
    paths = [Path(word.rstrip(":,")) for word in words if word.startswith("/")] if status else []
    for path in paths:
        folder = next((parent for parent in path.parents if parent != Path("/") and parent.is_dir()), None)
        if folder is not None:
            usage = shutil.disk_usage(folder)
            return f"{usage.free / 1e9:.2f} of {usage.total / 1e9:.1f} GB free at {folder}"
    return ""
