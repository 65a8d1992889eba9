"""A container with NPUs as a value, from which `docker run`, compose files and Kubernetes manifests are written.

NPUs come by device nodes and driver mounts, or by the Ascend Docker runtime, never by both. `--privileged` is not used,
since it exposes every card. The host's network is used only on request. An NPU needs neither.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.engine.oci import env_of
from cannery.errors import UnableError, UsageError
from cannery.host.facts import card_text, uid_of
from cannery.run.mounts import Found, beside, driver_mounts, network_mounts, ranktable_mounts
from cannery.sandbox.box import Box, Mount
from cannery.vocab import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import PurePath

    from cannery.catalog.catalog import ChipAccess, ImageUser
    from cannery.host.facts import HostNpus

# root and nobody, which every distribution has in /etc/passwd.
NAMED = frozenset({0, 65534})
REPORT = "vllm-project/vllm-ascend issue 9490"
# The home of a user who cannot write the image's home. Every image has it, and every user can write it.
ANY_HOME = "/tmp"  # noqa: S108 - in a container of one user


@dataclass(frozen=True)
class RunAs:
    """A user and a group by number; `name` is the value of docker's --user."""

    name: str
    uid: int
    gid: int


def parse_run_as(text: str, user: ImageUser | None) -> RunAs:
    """Read `UID[:GID]` for an image of `user` (None: root). Without GID, the group is the one that docker takes.

    Raises `UsageError` for names: a cluster needs numbers, and only the image knows them.
    """
    match = re.fullmatch(r"([0-9]+)(?::([0-9]+))?", text)
    uid, gid = (uid_of(match[1]), uid_of(match[2] or "0")) if match else (None, None)
    if match is None or uid is None or gid is None:
        raise UsageError(f"--user: {text!r} is not a numeric user", hint='UID or UID:GID, as "$(id -u):$(id -g)"')
    if match[2] is None and user is not None and uid == user.uid:
        gid = user.gid
    return RunAs(text, uid, gid)


def home_env(run_as: RunAs | None, user: ImageUser | None) -> dict[str, str]:
    """Return HOME for a user who cannot write the home in an image of `user`, else nothing.

    That home belongs to the image's user and to group 0. In an image of root, other users have no home.
    """
    if run_as is None or run_as.uid == 0 or (user is not None and (run_as.uid == user.uid or run_as.gid == 0)):
        return {}
    return {"HOME": ANY_HOME}


def run_as_notes(run_as: RunAs | None, user: ImageUser | None, cards: int) -> Iterator[str]:
    """Yield a note on each thing that `run_as` is missing in an image of `user`, with that number of cards."""
    if run_as is None or run_as.uid == 0:
        return
    if user is None:
        what = f"uid {run_as.uid} has no home and no folder for caches in it (`user` in the profile gives both)"
        yield f"the image runs as root: {what}; HOME is {ANY_HOME}, unless -e sets another"
    elif home_env(run_as, user):
        yield f"{run_as.name} cannot write {user.home}: HOME is {ANY_HOME}, unless -e sets another"
    if cards > 1 and run_as.uid not in NAMED | ({user.uid} if user else set()):
        yield f"uid {run_as.uid} has no name in the image: HCCL between several cards fails for such a user ({REPORT})"


LONGEST_SHOWN = 80  # characters of a value in a message
_INDEX = re.compile(r"[0-9]{1,4}")
# The runtime reads the host's card numbers from the first. The second chooses cards in the container, which are counted
# from 0, whatever the names of their nodes (case D06).
GIVEN, VISIBLE = "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"
_VARIABLE = re.compile(r"[^\s=\0]+")
_MOST_PARTS = 3  # SRC, DST, options
# Any other source is the name of a volume.
_FOLDER = re.compile(r"/|\.\.?(?:/|$)")
HOST_NETWORK = "host"
# Without them, each library takes the first interface that it finds, often docker's bridge.
NAMES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


@dataclass(frozen=True)
class RunRequest:
    """A request to run an image.

    - `cards`: None means all of them. `npu` False starts without any device.
    - `nodes`: how many such containers a job has.
    - `terminal`: with a terminal; standard input is passed on either way.
    - `volumes`, `env`: the values of docker's `-v` and `-e`.
    - `runtime`: the docker runtime that adds the devices, instead of single nodes.
    - `network`: the value of docker's option; `interface`: the network interface for HCCL, gloo and similar libraries.
    - `caches`: folders of the user; `workdir`: a folder in the container, None for the image's.
    - `user`: the image's user, None for root; `run_as`: another user in its place.
    - `platform`: the image's platform if the engine's differs; an engine with containerd's image store needs it.
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

    - `cards`: the number of NPUs; `devices`: their nodes, () if `request.runtime` brings them.
    - `group`: the group of the nodes, which the container's user has to be in; None if it is root.
    - `driver`: the mounts of the driver and of HCCL's files.
    - `visible`: the variables that name cards; `env`: the others, None for the value in the client's environment.
    - `notes`: what is missing on this host; `warnings`: what a job fails without.
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
        """All mounts except the user's volumes and those that a volume replaces."""
        return (*self.driver, *beside(self.request.caches, self.request.volumes))


def make_container(request: RunRequest, access: ChipAccess, host: HostNpus) -> Container:
    """Bind `request` to `host`.

    Raises `UnableError` if NPUs are wanted and the host has none, or if a card or a manager node is missing. Raises
    `UsageError` for malformed volumes and variables, and for options that contradict each other. A path that does not
    exist is left out with a note, because docker would make an empty folder of it.
    """
    for text in request.volumes:
        volume_target(text)
    given: dict[str, str | None] = {}
    for text in request.env:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            hint = "NAME=VALUE, or NAME for its value in this shell; a name has no blanks"
            raise UsageError(f"-e {text!r} is not a variable", hint=hint)
        given[name] = value if equals else None
    if request.workdir is not None and not request.workdir.startswith("/"):
        raise UsageError(f"--workdir: {request.workdir!r} is not a path in a container", hint="a path from /")
    ours = (
        *home_env(request.run_as, request.user).items(),
        *((name, request.interface) for name in NAMES if request.interface),
    )
    env = (*((name, value) for name, value in ours if name not in given), *given.items())
    if not request.npu:
        if request.runtime:
            raise UsageError(
                f"the runtime {request.runtime} adds NPUs, and NPUS=none asks for none", hint="leave out one"
            )
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
    # Root can open nodes of root. Any other user has to be in the group of the nodes.
    group = None if host.group == 0 and request.is_root else host.group
    warnings = tuple(warning for item in found for warning in item.warnings)
    return Container(request, len(cards), nodes, group, driver, visible, env, notes, warnings)


def _found_mounts(request: RunRequest, access: ChipAccess, host: HostNpus) -> Iterator[Found]:
    """Yield the mounts of `host`: the driver, unless a runtime brings it, and the files that HCCL reads."""
    if not request.runtime:
        yield driver_mounts(access, host)
    if request.is_multi_node:
        yield network_mounts(access, host)
    if request.is_multi_node or request.runtime:
        yield ranktable_mounts(access, host, request.runtime)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


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
    """Return the variables that name cards. Raises `UsageError` if the user's own variables contradict them."""
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
    """Return the host's path in a volume; "" for the name of a volume, or without a source."""
    source, colon, _ = text.partition(":")
    return source if colon and _FOLDER.match(source) else ""


def volume_target(text: str) -> PurePosixPath:
    """Return DST of docker's `[SRC:]DST[:OPTIONS]`. Raises `UsageError` for another form."""
    parts = text.split(":")
    target = parts[min(1, len(parts) - 1)]
    if not parts[0] or not target.startswith("/") or len(parts) > _MOST_PARTS:
        hint = "SRC:DST[:ro], DST a path from / on; a path with a colon cannot be written like this"
        raise UsageError(f"-v {text!r} is not a volume", hint=hint)
    return PurePosixPath(target)


def docker_text(container: Container) -> str:
    """Return the command that starts `container`, with one option on each line."""
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
    # --init: without it the program is process 1, so Ctrl-C does nothing, and ray's children become zombies.
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
    """Return the option of a mount. With -v, docker would make an empty folder if the source is missing."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}", *["readonly"] * mount.read_only]
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(fields)  # docker reads the value as a row of CSV
    return "--mount", row.getvalue()


def container_box(container: Container, lowers: Sequence[PurePath], config: Mapping[str, Any]) -> Box:
    """Return the box of a container on unpacked layers, lowest first; `config` is that of the image, as in Docker."""
    request = container.request
    given = {name: value for name, value in (*container.visible, *container.env) if value is not None}
    user = request.run_as or request.user
    volumes = (_mount(text) for text in request.volumes if host_folder(text))
    return Box(
        lowers=tuple(lowers),
        command=request.command,
        binds=(*container.mounts, *volumes),
        env={**env_of(config), **given},
        user=(user.uid, user.gid) if user else (0, 0),
        workdir=request.workdir or str(config.get("WorkingDir") or "/"),
        devices=container.devices,
        shm_size=size_bytes(request.shm_size) or 0,
    )


def _mount(volume: str) -> Mount:
    """Return the mount of a folder of the host, from the value of docker's -v."""
    source, target, *options = volume.split(":")
    return Mount(source, target, "ro" in ",".join(options).split(","))
