"""Cannery's own engine for the user's own docker commands: a `docker` program to call, and the settings of a shell.

The host may have no docker client, or one without buildx, and the unpacked client does not find the plugin unpacked
beside it. So `<cache>/engine/bin/docker` runs the one and hands building to the other.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cannery.engine.own.layout import Layout
from cannery.util.io.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.engine.io.find import Engine
    from cannery.engine.own.packages import Binaries

# Settings of the user that must not lead a client away from the own engine.
REDIRECTING = (
    *("DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_API_VERSION"),
    *("BUILDX_BUILDER", "BUILDKIT_HOST"),
)
# `build` too: the client would look for buildx in the system's folders and refuse without.
WRAPPER = """\
#!/bin/sh
# Docker's client as Cannery's engine brought it; written at every start of that engine.
case "${{1-}}" in
buildx) shift && exec {buildx} "$@" ;;
build) exec {buildx} "$@" ;;
*) exec {docker} "$@" ;;
esac
"""


def write_wrapper(layout: Layout, binaries: Binaries) -> Path:
    """Write `<cache>/engine/bin/docker` for these programs, whole or not at all; return its path."""
    path = layout.bin / "docker"
    text = WRAPPER.format(docker=shlex.quote(str(binaries.docker)), buildx=shlex.quote(str(binaries.buildx)))
    write_atomic(path, text, mode=0o755)
    return path


def shell_text(engine: Engine, cache: Path, env: Mapping[str, str]) -> str:
    """Return text for `eval` in a POSIX shell, with which its docker commands reach `engine`.

    What of `env` leads elsewhere is unset. For a user's engine it is one comment.
    """
    if not engine.owned:
        return "# the host's own engine is used: docker commands reach it as they are\n"
    astray = [name for name in REDIRECTING if name in env]
    lines = [f"unset {' '.join(astray)}"] if astray else []
    lines.append(f"export DOCKER_HOST={shlex.quote(engine.host)}")
    lines.append(f'export PATH={shlex.quote(str(Layout.of(cache).bin))}:"$PATH"')
    return "".join(f"{line}\n" for line in lines)
