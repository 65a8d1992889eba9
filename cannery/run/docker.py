"""A container as the `docker run` command that starts it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cannery.run.container import Container
    from cannery.run.mounts import Mount


def docker_text(container: Container) -> str:
    """Return the command that starts `container` as a person would type it, one option a line."""
    lines: list[str] = []
    for word in docker_arguments(container):
        if word.startswith("-") or not lines or not lines[-1].startswith("-") or " " in lines[-1]:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return "docker " + " \\\n    ".join([" ".join(lines[:1]), *lines[1:]])


def docker_arguments(container: Container) -> tuple[str, ...]:
    """Return the arguments after `docker` that start `container`."""
    request = container.request
    # --init: as process 1 a program gets no default signals, Ctrl-C would do nothing, and ray's children stay zombies.
    arguments = ["run", "--rm", "--init", "--detach" if request.detach else "-it" if request.terminal else "-i"]
    arguments += ["--platform", request.platform] if request.platform else []
    arguments += ["--name", request.name] if request.name else []
    arguments += ["--workdir", request.workdir] if request.workdir else []
    arguments += ["--user", request.run_as.name] if request.run_as else []
    arguments += ["--shm-size", request.shm_size]
    arguments += ["--network", request.network] if request.network else []
    arguments += ["--runtime", request.runtime] if request.runtime else []
    arguments += [word for node in container.devices for word in ("--device", node)]
    arguments += ["--group-add", str(container.group)] if container.group is not None else []
    arguments += [word for mount in container.mounts for word in _mounted(mount)]
    arguments += [word for volume in request.volumes for word in ("-v", volume)]
    entries = ((name, value) for name, value in (*container.visible, *container.env))
    arguments += [w for name, value in entries for w in ("-e", name if value is None else f"{name}={value}")]
    return (*arguments, request.image, *request.command)


def _mounted(mount: Mount) -> tuple[str, str]:
    """Return the option of a mount: docker's -v would make an empty folder, root's, where the source is missing."""
    fields = ("type=bind", f"source={mount.source}", f"target={mount.target}")
    return "--mount", ",".join(map(_csv_field, (*fields, *(("readonly",) if mount.read_only else ()))))


def _csv_field(text: str) -> str:
    """Return a field of the row of CSV that docker takes the value of --mount for."""
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if quoted != text or "," in text else text
