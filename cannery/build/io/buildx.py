"""Run `docker buildx bake`: its events go to a view and a log, its failure becomes one of our errors.

BuildKit cuts a step's output at 2 MiB, or 200 KiB/s, unless the *daemon* (dockerd or buildkitd, not this client) was
started with BUILDKIT_STEP_LOG_MAX_SIZE=-1 and BUILDKIT_STEP_LOG_MAX_SPEED=-1.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from cannery.build.failure import failure
from cannery.build.io.secrets import NO_SECRETS, Secrets
from cannery.build.progress import BuildState, apply, close, read_line
from cannery.build.stages import Span
from cannery.render.render import BAKE_FILE
from cannery.util.addresses import redactor
from cannery.util.io.files import read_json, write_atomic
from cannery.util.io.process import cancel, end, lines, start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


# From buildx 0.20 on, bake asks before it reads a file outside its folder, such as the host's CA bundle. The bake file
# is our own, so this switches the question off.
NO_QUESTION = {"BUILDX_BAKE_ENTITLEMENTS_FS": "0"}


class View(Protocol):
    """Shows a build (`cannery.build.io.view` makes views)."""

    def update(self, state: BuildState) -> None:
        """Show `state`. Called for each event, and each second without one."""

    def finish(self, state: BuildState) -> None:
        """Show the last state and restore the terminal. Called once, also after a failure."""


def bake(  # noqa: PLR0913 - one request to buildx
    engine_command: tuple[str, ...],
    env: Mapping[str, str],
    folder: Path,
    *,
    target: str = "image",
    log: Path,
    view: Callable[[], View],
    overrides: tuple[str, ...] = (),
    secrets: Secrets = NO_SECRETS,
) -> tuple[int, int]:
    """Build `target` of the bake file in `folder`; return how many steps were cached, of how many.

    `engine_command` starts buildx, as ("docker", "buildx"), and `env` is its whole environment. `overrides` are values
    of `--set`. `secrets` are values that must not be in `log` or on the screen. `view` makes a view.

    A build that starts while a failed one is still ending shares its steps and its failure. It is then started again.

    Raises `BuildFailedError` (a step failed), `NetworkError` (the registry), `UnableError` (disk full, engine gone,
    QEMU missing). SIGINT and SIGTERM cancel the build, then `KeyboardInterrupt` is raised.
    """
    redact = redactor(secrets.values)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*engine_command, "bake", "-f", BAKE_FILE, "--progress=rawjson"]
    command += [word for override in overrides for word in ("--set", override)]
    with log.open("w", encoding="utf-8", errors="replace") as log_file:
        run = partial(_run, [*command, target], {**env, **NO_QUESTION}, folder, log=log_file, redact=redact)
        state, status = run(view=view())
        if status and state.joined:
            log_file.write(f"{state.seconds:8.2f} [cannery] it joined another build, which failed: starting again\n")
            state, status = run(view=view())
        log_file.write(f"{state.seconds:8.2f} [cannery] buildx ended with status {status}\n")
    if status:
        raise failure(state, str(log))
    cached, _, total = state.counts
    return cached, total


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
    """Write the lines of the last event and flush, so that a killed run leaves a complete log."""
    if state.fresh:
        log.write("".join(f"{state.seconds:8.2f} [{stage}] {line}\n" for stage, line in state.fresh))
        log.flush()


# In the rendered folder: what the last build made, and how long each part took.
TIMELINE = "log/timeline.json"


def keep_spans(folder: Path, reference: str, spans: Sequence[Span]) -> None:
    """Write what was made of the image `reference`. A build that made nothing keeps the file of an earlier one.

    A file that cannot be written is ignored: no build fails for it.
    """
    if spans:
        value = {"image": reference, "made": [asdict(one) for one in spans]}
        with suppress(OSError):
            write_atomic(folder / TIMELINE, json.dumps(value, indent=1))


def read_spans(folder: Path, reference: str) -> tuple[Span, ...]:
    """Return what the last build that made anything made of that image; nothing if it is not known."""

    def made(value: Mapping[str, Any]) -> tuple[Span, ...]:
        return tuple(Span(**one) for one in value["made"]) if value["image"] == reference else ()

    return read_json(folder / TIMELINE, made) or ()
