"""Labels the containers that a command starts with their owner, so that those of killed runs can be removed.

A container outlives its client. A verify container runs to its end and may hold NPUs, and a container that was created
but not started remains.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

LABEL = "org.cannery.owner"
PROC = Path("/proc")


def owner(proc: Path = PROC) -> str:
    """Return an identifier of this process: boot, pid namespace, pid, start time; "" without /proc."""
    pid = os.getpid()
    place, start = _place(proc), _start(proc, pid)
    return f"{place} {pid} {start}" if place and start else ""


def is_gone(text: str, proc: Path = PROC) -> bool:
    """Whether that owner has ended. False for another host, container or boot, where this host cannot know."""
    words = text.split(" ")
    if len(words) != 4 or not words[2].isdecimal():
        return False
    return " ".join(words[:2]) == _place(proc) and _start(proc, int(words[2])) != words[3]


def own_name(what: str) -> str:
    """Return a new name for a container that does `what`. A pid is not unique, because it repeats in containers."""
    return f"cannery-{what}-{secrets.token_hex(6)}"


def label_words() -> tuple[str, str]:
    """Return the options of `docker run` and `docker create` that label a container of this process."""
    return "--label", f"{LABEL}={owner()}"


def remove_orphans(client: docker.DockerClient) -> None:
    """Remove the containers of killed runs on this host. Errors of the engine are ignored."""
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
    """Return an id of the boot and the pid namespace, in which a pid is unique; "" if it is not known."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(proc / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start(proc: Path, pid: int) -> str:
    """Return the start time of a process in ticks since the boot; "" if it has ended."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
