"""Read a host for `doctor`: the running one, or a tree of files that was copied from one or made up.

Below a tree nothing of the real host is read: symbolic links are followed within it, as the host itself would.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.engine.io.find import NoEngineError, find_engine
from cannery.errors import CanneryError
from cannery.host.facts import (
    CARD,
    CONTAINER_MARKS,
    DEV,
    DOCKER_PROGRAMS,
    GROUP,
    HCCN,
    INSTALL_INFO,
    NPU_SMI,
    PASSWD,
    RANKTABLE,
    RUNTIME_PROGRAMS,
    TEXTS,
    EngineState,
    HostFacts,
    HostNpus,
    Node,
    User,
    install_folder,
    is_in_place,
    json_object,
    nameless,
    place_of,
    uid_of,
    user_in,
)
from cannery.util.io.process import run
from cannery.util.links import followed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


MOST_BYTES = 1 << 20
HUAWEI = "0x19e5"
PCI_WORDS = ("vendor", "device", "class")
SMI_SECONDS = 30.0
LIBRARIES = ("lib64", "lib64/driver", "lib64/common")
# Where images are kept when no engine reports it.
DATA_ROOT = "/var/lib/docker"


def below(root: Path, path: str) -> Path | None:
    """Return where the host's `path` is in the tree at `root`; symlinks are followed within the tree.

    None for a circular link; a path that does not exist is returned too. Raises `OSError` for a path that the caller
    cannot read, or that no file system can have.
    """

    def link(place: str) -> str | None:
        real = root / place.lstrip("/")
        with suppress(FileNotFoundError, NotADirectoryError):
            # Not `is_symlink`, which in newer Pythons is False for a path that the caller cannot read.
            return str(real.readlink()) if stat.S_ISLNK(real.lstat().st_mode) else None
        return None

    found = followed(path, link)
    return None if found is None else root / found.lstrip("/")


@dataclass
class HostTree:
    """The files of a host, in the tree at `root`.

    `closed` collects paths that the caller cannot read, `folders` those that are a folder instead of a file or node.
    """

    root: Path
    closed: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of a path; None if it does not exist or has the wrong type."""
        found = self._found(path)
        if found is None or is_in_place(path, found[1].st_mode):
            return found[1] if found else None
        self.folders.add(path)
        return None

    def text(self, path: str) -> str | None:
        """Return the text of a file; None if it is missing or cannot be read."""
        found = self._found(path)
        if found is None or not stat.S_ISREG(found[1].st_mode):
            return None
        try:
            with found[0].open("rb") as file:
                return file.read(MOST_BYTES).decode(errors="replace")
        except PermissionError:
            self.closed.add(path)
        except OSError:
            pass
        return None

    def texts(self, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield (path, text) of the files that can be read."""
        yield from ((path, text) for path in paths if (text := self.text(path)) is not None)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted. Raises `OSError` if it cannot be read."""
        folder = below(self.root, path)
        return sorted(entry.name for entry in os.scandir(folder)) if folder is not None else []

    def _found(self, path: str) -> tuple[Path, os.stat_result] | None:
        """Return the real path of a path of the host, and its status."""
        try:
            real = below(self.root, path)
            return None if real is None else (real, real.stat())
        except PermissionError:
            self.closed.add(path)
        except OSError:
            pass
        return None


def read_tree(root: Path, chip_paths: Iterable[str], user: str | None) -> HostFacts:
    """Return what the files of a host show: those of the running host at /, or of a copied tree.

    `chip_paths` are the manager nodes and mounts of every chip; `user` is who is to use the NPUs, by name or number: a
    name that the host does not have is None (`HostFacts.user`). Paths that the caller cannot read are
    `HostFacts.unreadable`.
    """
    wanted = [path for path in chip_paths if not path.startswith("/dev/")]
    nodes = {path for path in chip_paths if path.startswith("/dev/")}
    tree = HostTree(root)
    texts = dict(tree.texts(TEXTS))
    home = install_folder(texts.get(INSTALL_INFO, ""))
    texts |= tree.texts((f"{home}/driver/version.info", f"{home}/firmware/version.info"))
    places = [*wanted, *(path.replace("/usr/local/Ascend", home, 1) for path in wanted), *NPU_SMI, f"{home}/driver/"]
    places += [*RUNTIME_PROGRAMS, *DOCKER_PROGRAMS, *CONTAINER_MARKS]
    places += [f"{home}/driver/{folder}/libascend_hal.so" for folder in LIBRARIES]
    places += [INSTALL_INFO, HCCN, RANKTABLE]
    return HostFacts(
        paths=frozenset(filter(tree.status, places)),
        nodes=tuple(_nodes(tree, nodes)),
        pci=pci_devices(root),
        texts=texts,
        unreadable=frozenset(tree.closed),
        folders=frozenset(tree.folders),
        user=user_in(texts.get(PASSWD, ""), texts.get(GROUP, ""), user) if user else None,
    )


def read_facts(
    chip_paths: Iterable[str], user: str | None, env: Mapping[str, str], folders: Sequence[Path]
) -> HostFacts:
    """Return what the running host shows: its files as `read_tree` reads them, its engine, disk and npu-smi.

    The default of `user` is the caller. `folders` are where images are made if no engine is running.
    """
    places = [Path(DATA_ROOT)]
    try:
        answer = find_engine(env)
        engine = EngineState(answer.server_version, answer.storage_driver, user_map=answer.user_map)
        places = [answer.data_root] if answer.data_root else places
    except CanneryError as error:
        engine = EngineState(problem=error.what, hint=error.hint, is_absent=isinstance(error, NoEngineError))
        places = [*folders] if engine.is_absent else places
    disk_free, disk_at = min(map(_disk, places))
    found = read_tree(Path("/"), chip_paths, None)
    return replace(
        found,
        live=True,
        user=_named(user) if user else _this_user(),
        engine=engine,
        disk_free=disk_free,
        disk_at=str(disk_at),
        shm=_size(Path("/dev/shm")),  # noqa: S108 - looked at, not written to
        page=os.sysconf("SC_PAGE_SIZE"),
        smi=_smi(found.paths, env),
    )


def _nodes(tree: HostTree, managers: Iterable[str]) -> Iterator[Node]:
    """Yield the device nodes of NPUs, cards first, in order. A tree may have plain files instead."""
    names: list[str] = []
    try:
        names = tree.names(DEV)
    except PermissionError:
        tree.closed.add(DEV)
    except OSError:
        pass
    paths = (f"{DEV}/{name}" for name in names)
    cards = sorted((int(match[1]), path) for path in paths if (match := CARD.fullmatch(path)))
    for path in (*(path for _, path in cards), *sorted(managers)):
        about = tree.status(path)
        if about is not None:
            yield Node(path, about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode), stat.S_ISCHR(about.st_mode))


def pci_devices(root: Path) -> tuple[tuple[str, str], ...] | None:
    """Return (device id, class) of each device of the vendor; None if the bus is not visible."""
    tree = HostTree(root)
    try:
        names = tree.names("/sys/bus/pci/devices")
    except OSError:
        return None
    found = []
    for name in names:
        place = f"/sys/bus/pci/devices/{name}"
        words = {path: text.strip() for path, text in tree.texts(f"{place}/{word}" for word in PCI_WORDS)}
        if words.get(f"{place}/vendor") == HUAWEI:
            found.append((words.get(f"{place}/device", ""), words.get(f"{place}/class", "")))
    return tuple(found)


def _this_user() -> User:
    uid = os.geteuid()
    groups = frozenset({os.getegid(), *os.getgroups()})
    try:
        return User(pwd.getpwuid(uid).pw_name, uid, groups)
    except KeyError:
        return User(str(uid), uid, groups, is_named=False)


def _named(text: str) -> User | None:
    """Return a user, by name or number, as the host knows it. It may be in another database than /etc/passwd."""
    uid = uid_of(text)
    try:
        entry = pwd.getpwnam(text)
    except KeyError:
        try:
            entry = pwd.getpwuid(-1 if uid is None else uid)
        except (KeyError, OverflowError):
            return nameless(uid)
    others = {group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem}
    return User(entry.pw_name, entry.pw_uid, frozenset({entry.pw_gid, *others}))


def _smi(paths: Iterable[str], env: Mapping[str, str]) -> str | None:
    """Return the output of `npu-smi info`, or None without it. It may hang if the driver does."""
    program = next((path for path in NPU_SMI if path in paths), None)
    if program is None:
        return None
    try:
        done = run((program, "info"), env=env, timeout=SMI_SECONDS, check=False)
    except CanneryError:
        return f"no answer within {SMI_SECONDS:g} s"
    except OSError as error:
        return f"it cannot be started: {error.strerror}"
    return done.stdout + done.stderr


def _disk(path: Path) -> tuple[int, Path]:
    """Return the free bytes of the disk of `path`, and the nearest folder of that path that exists."""
    place = next(filter(_is_there, [path, *path.parents]))
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize, place


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # below a folder that this user may not enter
        return False


def _size(path: Path) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize if path.is_mount() else None


def read_host(paths: tuple[str, ...], root: Path) -> HostNpus:
    """Return which of `paths` this host has (below `root`), the group of the device nodes, the ranktable's version.

    The driver's paths are searched in its folder. Paths that the caller cannot read are `HostNpus.hidden`.
    """
    tree = HostTree(root)
    install = install_folder(tree.text(INSTALL_INFO) or "")
    places = {path: place_of(path, install) for path in paths}
    found = {path: about for path, place in places.items() if (about := tree.status(place))}
    nodes = frozenset(path for path in found if path.startswith("/dev/"))
    groups = {found[path].st_gid for path in nodes}
    version = json_object(tree.text(RANKTABLE) or "" if RANKTABLE in found else "")[0].get("version")
    return HostNpus(
        nodes,
        frozenset(found) - nodes,
        min(groups - {0}, default=min(groups, default=None)),
        version if isinstance(version, str) else "",
        frozenset(path for path, place in places.items() if place in tree.closed and path not in found),
        install,
    )
