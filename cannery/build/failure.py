"""Turn the state of a failed bake into an error of the right kind.

The patterns are for messages recorded from buildx 0.13.1 with Docker 26.1.5 (tests/unit/data), and BuildKit's own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.engine.stream import ENGINE_PROXY
from cannery.errors import BuildFailedError, CanneryError, NetworkError, UnableError
from cannery.util.addresses import registry_of

if TYPE_CHECKING:
    from cannery.build.progress import BuildState, Step

# gRPC's messages when the daemon has ended.
_AWAY = re.compile(r"error reading from server: EOF|code = Unavailable|Unavailable: |transport is closing")
_NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_EXEC_FORMAT = re.compile(r"exec format error", re.IGNORECASE)
_EXIT_CODE = re.compile(r"exit code: (\d+)")
_ENGINE = re.compile(
    r"cannot connect to the docker daemon|error during connect|docker daemon socket|failed to find driver",
    re.IGNORECASE,
)
_REMOTE = re.compile(
    r"failed to resolve source metadata|failed to do request|failed to authorize|failed to fetch \w+ token"
    r"|failed to push|pull access denied|dial tcp|i/o timeout|no such host|x509:|tls:|TLS handshake|toomanyrequests"
    r"|httpReadSeeker|unexpected status|401 Unauthorized|403 Forbidden|connection re(set|fused)"
)
# Messages of apt and dnf when the mirror of system packages does not answer.
_MIRROR_AWAY = re.compile(
    r"Temporary failure resolving|Could not resolve|Couldn't resolve host|Could not connect to|Unable to connect to"
    r"|Connection (?:timed out|failed|refused)|Network is unreachable|No route to host|Curl error \(\d+\)"
)
_URL_HOST = re.compile(r"https?://(?:[^/\s@\"]*@)?([^/\s\"]+)")
_REFERENCE = re.compile(r"(?:load metadata for|source metadata for|^FROM) (\S+?)(?=:? |:?$)")


def failure(state: BuildState, log: str) -> CanneryError:
    """Return the error for a failed build: unable, network or build failed. `log` is the path of its log."""
    step = state.failed
    text = _text(state, step)
    if _AWAY.search(text):
        hint = "run the same command again: what was built before is kept"
        return UnableError(f"the engine went away during the build\n{_short(text)}", where="engine", hint=hint)
    tail = step.tail if step else ()
    if step is None and _ENGINE.search(text):
        return UnableError(_short(text), where="engine", hint="is it running, and may this user reach it?")
    where = _stage_of(step)
    if _NO_SPACE.search(text) or any(_NO_SPACE.search(line) for line in tail):
        hint = f"free some disk space (`build.py clean` shows what Cannery holds); full log: {log}"
        return UnableError(f"no space left for the build\n{_short(text)}", where=where, hint=hint)
    if _EXEC_FORMAT.search(text) or any(_EXEC_FORMAT.search(line) for line in tail[-3:]):
        what = f"a program for another architecture cannot run here\n{_short(text)}"
        hint = "QEMU for the target's platform is missing: `build.py doctor PROFILE` with this ARCH lists what to do"
        return UnableError(what, where=where, hint=hint)
    if not text.startswith("process ") and (_REMOTE.search(text) or _is_base(step)):
        return _network(step, text)
    return _build_failed(step, text, where, state, log)


def _is_base(step: Step | None) -> bool:
    """Whether the step only fetches the base image: any failure of it is the registry's."""
    return step is not None and (step.name.stage == "base image" or step.name.instruction.startswith("FROM "))


def _network(step: Step | None, text: str) -> NetworkError:
    named = step.name.instruction if step else ""
    reference = _REFERENCE.search(named) or _REFERENCE.search(text)
    url = _URL_HOST.search(text)
    registry = registry_of(reference[1]) if reference else url[1] if url else "registry"
    image = f": {reference[1]}" if reference else ""
    hint = f"check the registry's answer; {ENGINE_PROXY}; or set a mirror (mirrors.registry in cannery.toml)"
    return NetworkError(f"the engine cannot fetch it{image}\n{_short(text)}", where=f"registry {registry}", hint=hint)


def _build_failed(step: Step | None, text: str, where: str, state: BuildState, log: str) -> CanneryError:
    what = _what_failed(step, text, state, log)
    if step and _is_without_mirror(step):
        hint = (
            "a build step must reach the mirror of system packages: check DNS and network (those of the engine, if one "
            "builds), then run the same command again"
        )
        return NetworkError(what, where=where, hint=hint)
    hint = "run the same command again to continue at this step: what was built before is kept"
    if _exit_code(text) == "137":
        hint = "137 means that the process was killed, most often because memory ran out: see `dmesg`"
    return BuildFailedError(what, where=where, hint=hint)


def _is_without_mirror(step: Step) -> bool:
    """Whether the step installs system packages and printed that it cannot reach their mirror."""
    return "/system.sh " in step.name.instruction and any(_MIRROR_AWAY.search(line) for line in step.tail)


def _exit_code(text: str) -> str:
    code = _EXIT_CODE.search(text) if text.startswith("process ") else None
    return code[1] if code else ""


def _what_failed(step: Step | None, text: str, state: BuildState, log: str) -> str:
    code = _exit_code(text)
    what = [f"build failed: exit code {code}" if code else f"build failed: {_short(text)}"]
    what += [f"  {step.name.instruction}"] if step else []
    what += [f"  | {line}" for line in (step.tail if step else state.other[-12:])]
    return "\n".join([*what, f"  full log: {log}"])


def _stage_of(step: Step | None) -> str:
    return "" if step is None else f"stage {step.name.stage}" if step.name.is_step else step.name.stage


def _text(state: BuildState, step: Step | None) -> str:
    if step:
        return step.error
    errors = [n for n, line in enumerate(state.other) if line.startswith("ERROR: ")]
    text = "\n".join(state.other[errors[-1] :] if errors else state.other[-5:])
    return text.removeprefix("ERROR: ").removeprefix("failed to solve: ") or "no reason given"


def _short(text: str, limit: int = 1000) -> str:
    return text if len(text) <= limit else f"{text[:limit]} …"
