"""Containers that a command starts: each has a label with its owner, so that those of killed runs are removed.

The daemon goes on with a container when its client is gone: one of verify runs to its end and may keep NPUs meanwhile,
and one that was created and never started stays.
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
    """Return what identifies this process: boot, pid namespace, pid, start; "" without /proc."""
    pid = os.getpid()
    place, start = _place(proc), _start(proc, pid)
    return f"{place} {pid} {start}" if place and start else ""


def is_gone(text: str, proc: Path = PROC) -> bool:
    """Whether that owner has ended. False for one of another host, container or boot: nothing is known of it."""
    words = text.split(" ")
    if len(words) != 4 or not words[2].isdecimal():
        return False
    return " ".join(words[:2]) == _place(proc) and _start(proc, int(words[2])) != words[3]


def own_name(what: str) -> str:
    """Return a name for a container of this process that does `what`.

    It is not made of the pid, which is the same each time in a container.
    """
    return f"cannery-{what}-{secrets.token_hex(6)}"


def label_words() -> tuple[str, str]:
    """Return the label of a container that this process creates, as options of `docker run` and `docker create`."""
    return "--label", f"{LABEL}={owner()}"


def remove_orphans(client: docker.DockerClient) -> None:
    """Remove the containers of killed runs on this host; other calls report an engine that does not answer."""
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
    """Return where a pid is unique: a boot, and a pid namespace in it; "" where that is not known."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(proc / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start(proc: Path, pid: int) -> str:
    """Return when a process began, in ticks since the boot; "" for one that has ended."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
