"""Containers that a command starts for its own time: each says who started it, so that what a killed run left can go.

The daemon goes on with a container when its client is gone: one of verify runs to its end and may hold NPUs meanwhile,
and one that was made and not yet started stays for good.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

LABEL = "org.cannery.owner"
PROC = Path("/proc")


class ContainerClient(Protocol):
    """The part of docker's `DockerClient` used here."""

    @property
    def api(self) -> Any: ...  # noqa: ANN401, D102 - docker has no types


def owner(proc: Path = PROC) -> str:
    """Return this process, told apart from every other: boot, pid namespace, pid, start; "" where no /proc is."""
    pid = os.getpid()
    place, start = _place(proc), _start(proc, pid)
    return f"{place} {pid} {start}" if place and start else ""


def is_gone(text: str, proc: Path = PROC) -> bool:
    """Whether that owner has ended. Of one of another host, container or boot nothing is known: False."""
    words = text.split(" ")
    if len(words) != 4 or not words[2].isdecimal():
        return False
    return " ".join(words[:2]) == _place(proc) and _start(proc, int(words[2])) != words[3]


def own_name(what: str) -> str:
    """Return a name for a container of this process that is made to do `what`.

    Not by the pid: in a container that is the same each time, and a killed run's may still be going.
    """
    return f"cannery-{what}-{secrets.token_hex(6)}"


def labels() -> dict[str, str]:
    """Return the labels of a container that this process makes."""
    return {LABEL: owner()}


def label_words() -> tuple[str, str]:
    """Return them as options of `docker run` and `docker create`."""
    return "--label", f"{LABEL}={owner()}"


def remove_orphans(client: ContainerClient) -> None:
    """Remove the containers of runs on this host that were killed; an engine that does not answer says so elsewhere."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    trouble = (docker.errors.DockerException, requests.RequestException)
    left: list[str] = []
    with suppress(*trouble):
        found = client.api.containers(all=True, filters={"label": LABEL})
        left = [one["Id"] for one in found if is_gone(one["Labels"].get(LABEL, ""))]
    for container in left:
        with suppress(*trouble):  # another run may be removing it too
            client.api.remove_container(container, force=True)


def _place(proc: Path) -> str:
    """Where a pid means one process: a boot, and a pid namespace in it; "" where that is not told."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(proc / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start(proc: Path, pid: int) -> str:
    """When a process began, in ticks since the boot; "" of one that is not there, or has ended and is not reaped."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
