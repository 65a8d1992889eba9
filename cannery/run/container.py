"""A container that reaches NPUs, as a value: `docker run`, compose files and Kubernetes manifests are written from it.

Explicit device nodes and driver mounts, or the Ascend Docker runtime in their place, never both. No `--privileged` (it
exposes every card), and no host network unless it is asked for: neither is needed to reach an NPU.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.assemble.image import env_of
from cannery.errors import UnableError, UsageError
from cannery.host.facts import card_text, uid_of
from cannery.run.mounts import Found, Mount, beside, driver_mounts, network_mounts, ranktable_mounts
from cannery.sandbox.box import Bind, Box
from cannery.vocab import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import PurePath

    from cannery.catalog.catalog import ChipAccess, ImageUser
    from cannery.host.facts import HostNpus

# Every distribution has them in /etc/passwd: root and nobody.
NAMED = frozenset({0, 65534})
REPORT = "vllm-project/vllm-ascend issue 9490"
# The home of a user who cannot write the image's: every image has it, and every user can write it.
ANY_HOME = "/tmp"  # noqa: S108 - in a container of one user


@dataclass(frozen=True)
class RunAs:
    """A user and a group by number; `name` is what docker's --user takes."""

    name: str
    uid: int
    gid: int


def parse_run_as(text: str, user: ImageUser | None) -> RunAs:
    """Read `UID[:GID]` for an image of `user` (None: root's). Without a group it is the one that docker takes.

    Raises `UsageError` for names: which number one has, only the image knows, and a cluster needs the number.
    """
    match = re.fullmatch(r"([0-9]+)(?::([0-9]+))?", text)
    uid, gid = (uid_of(match[1]), uid_of(match[2] or "0")) if match else (None, None)
    if match is None or uid is None or gid is None:
        raise UsageError(f"--user: {text!r} is no user by number", hint='UID or UID:GID, as "$(id -u):$(id -g)"')
    if match[2] is None and user is not None and uid == user.uid:
        gid = user.gid
    return RunAs(text, uid, gid)


def home_env(run_as: RunAs | None, user: ImageUser | None) -> dict[str, str]:
    """Return HOME for one who cannot write at the home of an image of `user`, else nothing.

    The home that an image's user has is that user's and group 0's; in root's image another one has none, or / for it.
    """
    if run_as is None or run_as.uid == 0 or (user is not None and (run_as.uid == user.uid or run_as.gid == 0)):
        return {}
    return {"HOME": ANY_HOME}


def run_as_notes(run_as: RunAs | None, user: ImageUser | None, cards: int) -> Iterator[str]:
    """Give a note on each thing that such a user is missing in an image of `user`, with so many cards."""
    if run_as is None or run_as.uid == 0:
        return
    if user is None:
        what = f"uid {run_as.uid} has no home and no place for caches there (`user` in its profile)"
        yield f"the image is root's: {what}; HOME is {ANY_HOME}, unless -e sets another"
    elif home_env(run_as, user):
        yield f"{run_as.name} cannot write {user.home}: HOME is {ANY_HOME}, unless -e sets another"
    if cards > 1 and run_as.uid not in NAMED | ({user.uid} if user else set()):
        yield f"uid {run_as.uid} has no name in the image: HCCL between several cards fails for such a user ({REPORT})"


LONGEST_SHOWN = 80  # letters of a value, in a message
_INDEX = re.compile(r"[0-9]{1,4}")
# The runtime reads the host's numbers from the first; in a container cards count from 0, whatever their nodes are
# called, and the second names some of those (case D06).
GIVEN, VISIBLE = "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"
_VARIABLE = re.compile(r"[^\s=\0]+")
_MOST_PARTS = 3  # SRC, DST, options
# A source that is no path is the name of a volume.
_FOLDER = re.compile(r"/|\.\.?(?:/|$)")
HOST_NETWORK = "host"
# Without them each library takes the first interface that it finds, which on many hosts is docker's own bridge.
NAMES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


@dataclass(frozen=True)
class RunRequest:
    """What is to run.

    `cards` None means all of them; `npu` False starts without any device; `runtime` is the docker runtime that brings
    the devices in place of single nodes; `volumes` and `env` are what docker takes after `-v` and `-e`; `terminal` asks
    for a terminal (standard input is handed on either way); `nodes` is how many such containers a job has. `network` is
    docker's word, `interface` the host's that HCCL, gloo and the rest talk by.
    `caches` are folders of the user's; `workdir` is a folder of the container, None for the image's.
    `user` is the user of the image, None for root; `run_as` is another one in its place. `platform` is the image's
    where the engine's is another: engines with containerd's image store need it.
    """

    image: str
    shm_size: str
    cards: tuple[int, ...] | None = None
    npu: bool = True
    nodes: int = 1
    terminal: bool = False
    detach: bool = False
    name: str | None = None
    volumes: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    runtime: str | None = None
    network: str | None = None
    interface: str | None = None
    caches: tuple[Mount, ...] = ()
    workdir: str | None = None
    user: ImageUser | None = None
    run_as: RunAs | None = None
    platform: str | None = None

    @property
    def is_root(self) -> bool:
        """Whether the container runs as root."""
        return self.user is None if self.run_as is None else self.run_as.uid == 0

    @property
    def is_multi_node(self) -> bool:
        """Whether HCCL has to reach other hosts."""
        return self.nodes > 1 or self.network == HOST_NETWORK


@dataclass(frozen=True)
class Container:
    """A request bound to a host.

    `cards` is how many NPUs are in it, `devices` the nodes that bring them ((): `request.runtime` does), `driver` the
    mounts of the driver and of HCCL's files, `visible` the variables that name cards, `env` the rest (None: the value
    that the client's environment has). `group` is the nodes' one, which the container's user has to be in (None: root
    needs none). `notes` name what is missing on this host, `warnings` that without which
    a job fails.
    """

    request: RunRequest
    cards: int
    devices: tuple[str, ...]
    group: int | None
    driver: tuple[Mount, ...]
    visible: tuple[tuple[str, str], ...]
    env: tuple[tuple[str, str | None], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Every mount that is not one of the user's own volumes, and that none of those replaces."""
        return (*self.driver, *beside(self.request.caches, self.request.volumes))


def make_container(request: RunRequest, access: ChipAccess, host: HostNpus) -> Container:
    """Bind `request` to `host`.

    Raises `UnableError` when NPUs are wanted and the host has no card, or a manager node or a card that is named is
    missing, `UsageError` for volumes and variables that are none, and for variables and options that contradict each
    other; the engine refuses what else it does not take. Paths that do not exist are left out with a note: docker would
    make empty folders of them.
    """
    for text in request.volumes:
        volume_target(text)
    for text in request.env:
        if not _VARIABLE.fullmatch(text.partition("=")[0]):
            hint = "NAME=VALUE, or NAME for its value in this shell; a name has no blanks"
            raise UsageError(f"-e {text!r} names no variable", hint=hint)
    if request.workdir is not None and not request.workdir.startswith("/"):
        raise UsageError(f"--workdir: {request.workdir!r} is no path of a container", hint="a path from /")
    given = dict(_entry(text) for text in request.env)
    ours = (
        *home_env(request.run_as, request.user).items(),
        *((name, request.interface) for name in NAMES if request.interface),
    )
    env = (*((name, value) for name, value in ours if name not in given), *given.items())
    if not request.npu:
        if request.runtime:
            raise UsageError(f"the runtime {request.runtime} brings NPUs, and none are wanted", hint="leave out one")
        return Container(request, 0, (), None, (), (), env, tuple(run_as_notes(request.run_as, request.user, 0)))
    cards = _chosen_cards(request, access, host)
    visible = _visible(request, cards, given)
    others = (*access.managers, *(folder for folder in access.folders if folder in host.nodes))
    nodes = () if request.runtime else (*(f"/dev/davinci{n}" for n in cards), *others)
    found = list(_found_mounts(request, access, host))
    driver = beside((mount for item in found for mount in item.mounts), request.volumes)
    notes = (
        *(note for item in found for note in item.notes),
        *run_as_notes(request.run_as, request.user, len(cards)),
    )
    # Root opens root's nodes; another user opens them as a member of root's group, which they belong to.
    group = None if host.group == 0 and request.is_root else host.group
    warnings = tuple(warning for item in found for warning in item.warnings)
    return Container(request, len(cards), nodes, group, driver, visible, env, notes, warnings)


def _found_mounts(request: RunRequest, access: ChipAccess, host: HostNpus) -> Iterator[Found]:
    """Give what of `host` is mounted: the driver, which a runtime brings by itself, and what HCCL reads."""
    if not request.runtime:
        yield driver_mounts(access, host)
    if request.is_multi_node:
        yield network_mounts(access, host)
    if request.is_multi_node or request.runtime:
        yield ranktable_mounts(access, host, request.runtime)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _entry(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _chosen_cards(request: RunRequest, access: ChipAccess, host: HostNpus) -> tuple[int, ...]:
    hint = "install the Ascend driver, or start without NPUs: NPUS=none (`build.py run --npus none`)"
    if not host.cards:
        raise UnableError("no NPU on this host: there is no /dev/davinci0 … node", hint=hint)
    missing = [node for node in access.managers if node not in host.nodes]
    if missing:
        raise UnableError(f"missing on this host: {', '.join(missing)}", hint=hint)
    cards = host.cards if request.cards is None else request.cards
    absent = [n for n in cards if n not in host.cards]
    if absent:
        hint = f"NPUS may name {card_text(host.cards)}: N of /dev/davinciN, Phy-ID or Device in npu-smi (not NPU)"
        raise UnableError(f"no card {', '.join(map(str, absent))} on this host", hint=hint)
    return cards


def _visible(request: RunRequest, cards: tuple[int, ...], given: dict[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return the variables that name cards. Raises `UsageError` where the user's own contradict."""
    if GIVEN in given:
        hint = "choose cards by NPUS (`--npus`); with `--runtime ascend` the variable follows from that"
        raise UsageError(f"{GIVEN} is how the Ascend Docker runtime learns which cards a container gets", hint=hint)
    found = [(GIVEN, ",".join(map(str, cards)))] if request.runtime else []
    wanted = given.get(VISIBLE)
    if VISIBLE not in given and request.cards is not None:
        found.append((VISIBLE, ",".join(map(str, range(len(cards))))))
    elif wanted is not None:
        parts = [part.strip() for part in wanted.split(",")]
        bad = [part for part in parts if not (_INDEX.fullmatch(part) and int(part) < len(cards))]
        if bad:
            what = f"{VISIBLE}={_short(wanted)}: index {_short(', '.join(bad))} outside 0..{len(cards) - 1}"
            raise UsageError(what, hint="it counts the container's own cards from 0, whatever the host calls them")
    return tuple(found)


def host_folder(text: str) -> str:
    """Return the path of the host in a volume, "" for the name of a volume and where there is none."""
    source, colon, _ = text.partition(":")
    return source if colon and _FOLDER.match(source) else ""


def volume_target(text: str) -> PurePosixPath:
    """Return DST of docker's `[SRC:]DST[:OPTIONS]`. Raises `UsageError` for anything else."""
    parts = text.split(":")
    target = parts[min(1, len(parts) - 1)]
    if not parts[0] or not target.startswith("/") or len(parts) > _MOST_PARTS:
        hint = "SRC:DST[:ro], DST a path from / on; a path with a colon cannot be written like this"
        raise UsageError(f"-v {text!r} is no volume", hint=hint)
    return PurePosixPath(target)


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
        shm_size=size_bytes(request.shm_size) or 0,
    )


def _bind(volume: str) -> Bind:
    """Return a folder of the host that docker's -v names."""
    source, target, *options = volume.split(":")
    return Bind(PurePosixPath(source), target, "ro" in ",".join(options).split(","))
