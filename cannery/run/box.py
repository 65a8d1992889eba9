"""A container as a box: the same command, mounts, devices and variables without an engine."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.assemble.image import env_of
from cannery.run.container import host_folder
from cannery.sandbox.box import Bind, Box

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePath

    from cannery.run.container import Container

_UNITS = {"k": 10, "m": 20, "g": 30}


def container_box(container: Container, lowers: Sequence[PurePath], config: Mapping[str, Any]) -> Box:
    """Return the box of a container on unpacked layers, lowest first; `config` is the image's, as Docker has it."""
    request = container.request
    given = {name: value for name, value in (*container.visible, *container.env) if value is not None}
    user = request.run_as or request.user
    volumes = (_bind(text) for text in request.volumes if host_folder(text))
    return Box(
        lowers=tuple(lowers),
        command=request.command,
        binds=(*(Bind(PurePosixPath(one.source), one.target, one.read_only) for one in container.mounts), *volumes),
        env={**env_of(config), **given},
        user=(user.uid, user.gid) if user else (0, 0),
        workdir=request.workdir or str(config.get("WorkingDir") or "/"),
        devices=container.devices,
        shm_size=_bytes(request.shm_size),
    )


def _bind(volume: str) -> Bind:
    """Return a folder of the host that docker's -v names."""
    source, target, *options = volume.split(":")
    return Bind(PurePosixPath(source), target, "ro" in ",".join(options).split(","))


def _bytes(size: str) -> int:
    """Return a size as Docker writes it (`16g`) in bytes."""
    unit = _UNITS.get(size[-1].lower())
    return int(size) if unit is None else int(size[:-1]) << unit
