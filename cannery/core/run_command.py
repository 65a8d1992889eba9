"""The `docker run` command that gives a container its NPUs: explicit device nodes and driver mounts, nothing more.

No `--privileged` (it exposes every card) and no `--network host`: neither is needed to reach an NPU.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.core.errors import UnableError, UsageError

if TYPE_CHECKING:
    from cannery.core.catalog import ChipAccess

NPU_SMI = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi", "/usr/bin/npu-smi")
CARD = re.compile(r"/dev/davinci(\d+)")


@dataclass(frozen=True)
class HostNpus:
    """What a host has of what a container needs: device nodes, paths, and the group that owns the nodes (or None)."""

    nodes: frozenset[str]
    paths: frozenset[str]
    group: int | None = None

    @property
    def cards(self) -> tuple[int, ...]:
        """Numbers N of the /dev/davinciN nodes, ascending."""
        return tuple(sorted(int(m[1]) for node in self.nodes if (m := CARD.fullmatch(node))))


@dataclass(frozen=True)
class RunRequest:
    """What is to run.

    `cards` None means all of them; `npu` False starts without any device; `volumes` and `env` are what docker takes
    after `-v` and `-e`; `terminal` asks for a terminal (standard input is handed on either way).
    """

    image: str
    shm_size: str
    cards: tuple[int, ...] | None = None
    npu: bool = True
    terminal: bool = False
    detach: bool = False
    name: str | None = None
    volumes: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunCommand:
    """Arguments after `docker`, and notes on what this host lacks."""

    arguments: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """The command as a person would type it, one option a line."""
        lines: list[str] = []
        for word in self.arguments:
            if word.startswith("-") or not lines or not lines[-1].startswith("-") or " " in lines[-1]:
                lines.append(shlex.quote(word))
            else:
                lines[-1] += f" {shlex.quote(word)}"
        return "docker " + " \\\n    ".join([" ".join(lines[:1]), *lines[1:]])


def parse_cards(text: str) -> tuple[int, ...]:
    """Return card numbers of `0,1,4-7`, ascending, each once; raise `UsageError` for anything else."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,3})(?:-([0-9]{1,3}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"NPUS: {text!r} names no cards", hint="written like 0,1,4-7")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def wanted_paths(access: ChipAccess) -> tuple[str, ...]:
    """Return every node and path whose presence decides the command, for the edge to look at."""
    return (*(f"/dev/davinci{n}" for n in range(64)), *access.managers, *access.mounts, *NPU_SMI)


def full_model(access: ChipAccess, cards: tuple[int, ...] | None) -> HostNpus:
    """Return a host that has everything of a chip family: what `--print` shows."""
    numbers = range(access.cards) if cards is None else cards
    nodes = frozenset({*access.managers, *(f"/dev/davinci{n}" for n in numbers)})
    return HostNpus(nodes, frozenset({*access.mounts, NPU_SMI[0]}))


def lacking(access: ChipAccess, host: HostNpus) -> tuple[str, ...]:
    """Return what a host lacks of the chip's model, each named."""
    missing = [node for node in access.managers if node not in host.nodes]
    missing += [] if host.cards else ["/dev/davinci0 …"]
    missing += [path for path in access.mounts if path not in host.paths]
    missing += [] if host.paths & set(NPU_SMI) else ["npu-smi"]
    return tuple(missing)


def run_command(request: RunRequest, access: ChipAccess, host: HostNpus) -> RunCommand:
    """Return the command that starts `request` with the devices of `host`.

    Raises `UnableError` when NPUs are wanted and the host has no card, lacks a manager node, or lacks a card that was
    named. Paths that the host lacks are left out with a note: docker would make an empty folder of them.
    """
    # --init: as process 1 a program gets no default signals, Ctrl-C would do nothing, and ray's children stay zombies.
    arguments = ["run", "--rm", "--init", "--detach" if request.detach else "-it" if request.terminal else "-i"]
    arguments += ["--name", request.name] if request.name else []
    arguments += ["--shm-size", request.shm_size]
    notes: list[str] = []
    if request.npu:
        arguments += _devices(request, access, host)
        arguments += ["--group-add", str(host.group)] if host.group else []
        present = [path for path in access.mounts if path in host.paths]
        present += [path for path in NPU_SMI if path in host.paths][:1]
        arguments += [word for path in present for word in ("-v", f"{path}:{_inside(path)}:ro")]
        notes = [f"this host has no {path}: not mounted" for path in access.mounts if path not in host.paths]
        if not host.paths & set(NPU_SMI):
            notes.append("this host has no npu-smi: not mounted")
    arguments += [word for volume in request.volumes for word in ("-v", volume)]
    arguments += [word for entry in request.env for word in ("-e", entry)]
    return RunCommand((*arguments, request.image, *request.command), tuple(notes))


def _inside(path: str) -> str:
    """Return where a host path is mounted; npu-smi goes where the image's PATH finds it, wherever the host keeps it."""
    return NPU_SMI[0] if path in NPU_SMI else path


def _devices(request: RunRequest, access: ChipAccess, host: HostNpus) -> list[str]:
    hint = "install the Ascend driver, or start without NPUs: NPUS=none (`build.py run --npus none`)"
    if not host.cards:
        raise UnableError("no NPU on this host: there is no /dev/davinci0 … node", hint=hint)
    missing = [node for node in access.managers if node not in host.nodes]
    if missing:
        raise UnableError(f"this host lacks {', '.join(missing)}", hint=hint)
    cards = host.cards if request.cards is None else request.cards
    absent = [n for n in cards if n not in host.cards]
    if absent:
        have = ",".join(map(str, host.cards))
        raise UnableError(f"no card {', '.join(map(str, absent))} on this host", hint=f"NPUS may name {have}")
    nodes = [*(f"/dev/davinci{n}" for n in cards), *access.managers]
    return [word for node in nodes for word in ("--device", node)]
