"""The command that builds one stage alone, for a person to paste."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What of the environment decides which engine answers: private engines live on sockets of their own.
_ENGINE_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "BUILDX_CONFIG", "BUILDX_BUILDER")


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

    Secrets are named by id, as the bake file does; their values come from the environment as in the build itself.
    A target whose contexts are other targets exists for bake only, so the command is then one of bake.
    """
    chosen = _target(bake, target)
    engine = [f"{name}={shlex.quote(env[name])}" for name in _ENGINE_VARIABLES if env.get(name)]
    contexts = _table(chosen, "contexts")
    selected = ["--builder", builder] if builder else []
    if any(value.startswith("target:") for value in contexts.values()):
        command = [*engine_command, "bake", "-f", "docker-bake.json", "--progress=plain", *selected]
        command += ["--set", f"{target}.output=type=cacheonly"]
        command += ["--set", f"{target}.target={stage}"] if stage else []
        command.append(target)
    else:
        wanted = stage or str(chosen.get("target", ""))
        command = [*engine_command, "build", *(["--target", wanted] if wanted else []), "--progress=plain", *selected]
        command += ["--output", "type=cacheonly", "-f", str(chosen.get("dockerfile", "Dockerfile"))]
        for platform in _list(chosen, "platforms"):
            command += ["--platform", platform]
        for secret in _list(chosen, "secret"):
            command += ["--secret", secret]
        for option, values in (("--build-arg", _table(chosen, "args")), ("--build-context", contexts)):
            for name, value in values.items():
                command += [option, f"{name}={value}"]
        command.append(str(chosen.get("context", ".")))
    return " ".join([f"cd {shlex.quote(folder)} &&", *engine, shlex.join(command)])


def default_target(bake: Mapping[str, Any], targets: Sequence[str]) -> str:
    """Return the bake target that a step without a target in its name belongs to: the one that was built, or ""."""
    groups = bake.get("group")
    names = list(targets) or ["default"]
    while isinstance(groups, dict) and any(name in groups for name in names):
        group = next(name for name in names if name in groups)
        inner = groups[group].get("targets", []) if isinstance(groups[group], dict) else []
        groups = {name: value for name, value in groups.items() if name != group}
        names = [*inner, *(name for name in names if name != group)]
    return names[0] if names else ""


def _target(bake: Mapping[str, Any], name: str, seen: frozenset[str] = frozenset()) -> dict[str, Any]:
    table = bake.get("target")
    own = table.get(name) if isinstance(table, dict) else None
    if not isinstance(own, dict) or name in seen:
        return {}
    merged: dict[str, Any] = {}
    for layer in (*(_target(bake, parent, seen | {name}) for parent in _list(own, "inherits")), own):
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = {**merged[key], **value} if both else value
    return merged


def _list(table: Mapping[str, Any], key: str) -> list[str]:
    value = table.get(key)
    items = value if isinstance(value, list) else []
    # Newer bake files write a secret as {"id": …, "env": …}.
    return [",".join(f"{k}={v}" for k, v in i.items()) if isinstance(i, dict) else str(i) for i in items]


def _table(table: Mapping[str, Any], key: str) -> dict[str, str]:
    value = table.get(key)
    return {str(k): str(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else {}
