"""A container as a compose file of one service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.run.container import Container
    from cannery.run.mounts import Mount


def compose_file(container: Container, service: str) -> dict[str, Any]:
    """Return the compose file that starts `container` as `service`.

    A folder that is missing on the host fails there; compose would make an empty one.
    """
    request = container.request
    value: dict[str, Any] = {"image": _plain(request.image)}
    value |= {"container_name": request.name} if request.name else {}
    value |= {"user": request.run_as.name} if request.run_as else {}
    value |= {"working_dir": _plain(request.workdir)} if request.workdir else {}
    value |= {"init": True, "shm_size": request.shm_size}
    value |= {"stdin_open": True, "tty": True} if request.terminal else {}
    value |= {"network_mode": request.network} if request.network else {}
    value |= {"runtime": request.runtime} if request.runtime else {}
    value |= {"devices": [f"{node}:{node}" for node in container.devices]} if container.devices else {}
    value |= {"group_add": [str(container.group)]} if container.group is not None else {}
    volumes = [*(_volume(mount) for mount in container.mounts), *map(_plain, request.volumes)]
    value |= {"volumes": volumes} if volumes else {}
    value |= {"environment": _environment((*container.visible, *container.env))}
    value |= {"command": [_plain(word) for word in request.command]} if request.command else {}
    return {"services": {service: {key: item for key, item in value.items() if item != {}}}}


def _volume(mount: Mount) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "bind", "source": _plain(mount.source), "target": _plain(mount.target)}
    value |= {"read_only": True} if mount.read_only else {}
    return {**value, "bind": {"create_host_path": False}}


def _environment(env: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    return {name: None if value is None else _plain(value) for name, value in env}


def _plain(text: str) -> str:
    """Return a text that compose reads as it is: it puts variables of its own in the place of `$NAME`."""
    return text.replace("$", "$$")
