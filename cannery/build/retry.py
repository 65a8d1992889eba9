"""The command that builds one stage alone, for a person to paste."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from cannery.render.render import NO_QUESTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What of the environment decides which engine answers (private ones live on sockets of their own), and whether buildx
# asks before it reads a secret's file.
_ENGINE_VARIABLES = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "BUILDX_CONFIG", "BUILDX_BUILDER"),
    *NO_QUESTION,
)


def retry_command(  # noqa: PLR0913 - the parts of one command line
    engine_command: Sequence[str],
    env: Mapping[str, str],
    folder: str,
    bake: Mapping[str, Any],
    *,
    target: str,
    stage: str,
    builder: str | None = None,
) -> str:
    """Return a shell command that builds `stage` of the bake target `target` in `folder`, nothing exported.

    It is one of bake, so that secrets, arguments and contexts are the build's own; the bake file's variables that are
    set in `env` (paths of secrets, proxies) are named, since they may hold only for this command.
    """
    variables = bake.get("variable")
    names = [*_ENGINE_VARIABLES, *(variables if isinstance(variables, dict) else ())]
    settings = [f"{name}={shlex.quote(env[name])}" for name in names if env.get(name)]
    command = [*engine_command, "bake", "-f", "docker-bake.json", "--progress=plain"]
    command += ["--builder", builder] if builder else []
    command += ["--set", f"{target}.output=type=cacheonly"]
    command += ["--set", f"{target}.target={stage}"] if stage else []
    return " ".join([f"cd {shlex.quote(folder)} &&", *settings, shlex.join([*command, target])])
