"""The Debian system of a stand-in base: made by debootstrap and cached as a tar. All targets of one arch share it.

The host's apt (`cannery.standin.io.apt`: its mirrors, keys, proxies) fetches and verifies the packages. debootstrap
gets a `file:` mirror with only these packages. So wget is not needed, and the newest security updates are included.
debootstrap is unpacked in the cache and never installed.

The same packages give the same tar. Logs, caches, lists, backups, the mirror's address, the host name and the resolver
are left out, and times and the date in /etc/shadow are fixed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.standin.io.apt import fetch_debs, unpack
from cannery.util.io.files import sha256_bytes, sha256_file, write_atomic
from cannery.util.io.locks import held, own_folder
from cannery.util.io.namespace import HOW, is_in_namespace
from cannery.util.io.process import CommandError, run
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cannery.catalog.catalog import StandIn

# Bytes needed for packages (130 MB), tree (450 MB) and tar (400 MB), and some reserve.
SPACE = 1_500_000_000
BOOTSTRAP_TIMEOUT = 3600.0  # seconds; the second stage under QEMU takes minutes
# apt's pattern for all Essential packages. With usr-is-merged, apt does not choose usrmerge, which needs Perl.
ESSENTIAL = ("?essential", "usr-is-merged")
# Other packages that the first phase of debootstrap needs: base-files pre-depends on awk.
REQUIRED = frozenset({"mawk"})
# The first 20 bytes of an ELF file of each arch, as in binfmt_misc.
MAGIC = {Arch.ARM64: "7f454c460201010000000000000000000200b700", Arch.AMD64: "7f454c4602010100000000000000000002003e00"}
BINFMT = Path("/proc/sys/fs/binfmt_misc")
# These are compiled again without times: Debian's scripts write the source's mtime, which is not reproducible.
PYTHON_FOLDERS = ("/usr/lib/python3.11", "/usr/lib/python3", "/usr/share/python3")
COMPILE = ("-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash")
# In a new mount namespace, all mounts of debootstrap end with it. Its processes end with ours, so that the next run can
# remove the remains.
ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")


def rootfs_key(data: StandIn, arch: Arch) -> str:
    """Return the cache name of the rootfs of `data` for `arch`: suite, arch and a digest of its inputs."""
    content = data.model_dump(mode="json", include={"schema_number", "suite", "epoch", "packages", "leave_out", "keep"})
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{data.suite}-{arch}-{digest[:12]}"


def ensure_rootfs(data: StandIn, arch: Arch, *, cache: Path, host_arch: Arch, say: Callable[[str], None]) -> Path:
    """Return the tar of the rootfs below `cache`/rootfs, and make it if it is missing. Parallel runs make it once.

    Raises `UnableError` if the host cannot make it (no root, no QEMU for a foreign arch, no disk space, not Debian) and
    `NetworkError` if the mirror does not answer. The tar is written atomically.
    """
    folder = cache / "rootfs"
    target = folder / f"{rootfs_key(data, arch)}.tar"
    if target.is_file():
        return target
    with held(folder / f"{target.stem}.lock", lambda: None):
        if target.is_file():
            return target
        if os.geteuid() != 0:
            raise UnableError("making the stand-in base needs root", hint=f"{HOW}; or take another BASE")
        check_emulation(arch, host_arch)
        check_space(folder, SPACE)
        with own_folder(folder / "making") as work:
            say(f"stand-in: fetching Debian packages ({data.suite}, {arch})")
            debs = fetch_debs(
                (*ESSENTIAL, *data.packages), suite=data.suite, arch=str(arch), cache=cache, dependencies=True
            )
            tools = fetch_debs(("debootstrap",), suite=data.suite, arch=str(host_arch), cache=cache)
            slow = "" if arch is host_arch else ", under QEMU: some minutes"
            say(f"stand-in: making the system from {len(debs)} packages{slow}")
            tree = _bootstrap(data, arch, debs, tools, work=work, foreign=arch is not host_arch)
            part = work / "rootfs.tar"
            write_tar(tree, part, data)
            part.replace(target)
    return target


def check_emulation(arch: Arch, host_arch: Arch) -> None:
    """Raise `UnableError` with what to install if this host's kernel cannot run programs of `arch`.

    It is called before anything is fetched: making a stand-in base, and build steps on the target's platform, need it.
    It does not check an engine on another machine.
    """
    if arch is not host_arch and not is_registered(arch):
        raise UnableError(
            f"this host cannot run {arch} programs, and some steps of an image for {arch} need them",
            hint=arch.emulation,
        )


def check_space(folder: Path, wanted: int) -> None:
    """Raise `UnableError` if the file system of `folder` has less than `wanted` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise UnableError(
            f"{wanted / 1e9:.1f} GB are needed to make the stand-in base, {free / 1e9:.1f} GB are free",
            where=str(folder),
            hint="free some space, or set CANNERY_CACHE",
        )


def is_registered(arch: Arch, binfmt: Path = BINFMT) -> bool:
    """Whether the kernel runs ELF files of `arch` with an emulator that needs no file in the chroot (flag F)."""
    entries = [path for path in binfmt.glob("*") if path.name not in {"register", "status"}]
    for path in entries:
        lines = path.read_text(errors="replace").splitlines()
        words = dict(line.partition(" ")[::2] for line in lines)
        magic = words.get("magic", "")
        flags = words.get("flags:", "")
        if "enabled" in lines and magic.startswith(MAGIC[arch][:36]) and magic[36:40] == MAGIC[arch][36:40]:
            return "F" in flags
    return False


def _bootstrap(  # noqa: PLR0913 - the inputs of one run
    data: StandIn, arch: Arch, debs: Sequence[Path], tools: Sequence[Path], *, work: Path, foreign: bool
) -> Path:
    """Run debootstrap on a mirror of `debs` and return the folder of the finished system."""
    mirror, tree = work / "mirror", work / "tree"
    names = _write_mirror(mirror, debs, data.suite, arch)
    for deb in tools:
        unpack(deb, work / "tools")
    options = tree / "etc/dpkg/dpkg.cfg.d/standin"
    options.parent.mkdir(parents=True)
    # No documentation, also when a build adds packages, and no fsync for each file.
    excluded = [f"path-exclude={glob}" for glob in data.leave_out]
    options.write_text("\n".join(["force-unsafe-io", *excluded, *(f"path-include={glob}" for glob in data.keep), ""]))
    # debootstrap does not start without a wget, though a `file:` mirror needs none. This one fetches nothing.
    wget = work / "bin/wget"
    write_atomic(wget, "#!/bin/sh\nexit 1\n", mode=0o755)
    script = work / "tools/usr/share/debootstrap"
    env = {
        "PATH": f"{wget.parent}:{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin",
        "DEBOOTSTRAP_DIR": str(script),
        "DEBIAN_FRONTEND": "noninteractive",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(data.epoch),
        # debootstrap then binds the host's devices, because a user namespace cannot create devices.
        **({"container": "lxc"} if is_in_namespace() else {}),
    }
    first = ("sh", work / "tools/usr/sbin/debootstrap", f"--arch={arch}", "--variant=minbase", "--no-check-gpg")
    include = f"--include={','.join(names)}"
    stage = ("--foreign",) if foreign else ()
    compiling = (f"/usr/bin/python{data.python}", *COMPILE, *PYTHON_FOLDERS)
    try:
        with _without_spaces(work) as plain:
            places = (plain / tree.relative_to(work), f"file://{plain / mirror.relative_to(work)}")
            command = (*ALONE, *first, *stage, include, data.suite, *places)
            run(command, env=env, timeout=BOOTSTRAP_TIMEOUT)
        if foreign:
            second = ("chroot", tree, "/debootstrap/debootstrap", "--second-stage")
            run((*ALONE, *second), env={**env, "DEBOOTSTRAP_DIR": "/debootstrap"}, timeout=BOOTSTRAP_TIMEOUT)
        for compiled in tree.glob("usr/**/__pycache__"):
            shutil.rmtree(compiled)
        run((*ALONE, "chroot", tree, *compiling), env=env, timeout=BOOTSTRAP_TIMEOUT)
    except CommandError as error:
        log = tree / "debootstrap/debootstrap.log"
        tail = log.read_text(errors="replace").splitlines()[-10:] if log.is_file() else []
        raise UnableError("\n".join([f"the stand-in's Debian system cannot be made: {error}", *tail])) from error
    return tree


@contextmanager
def _without_spaces(work: Path) -> Iterator[Path]:
    """Yield a path of `work` without spaces, since debootstrap does not quote paths."""
    if not any(map(str.isspace, str(work))):
        yield work
        return
    with tempfile.TemporaryDirectory(prefix="cannery-") as plain:
        (Path(plain) / "work").symlink_to(work)
        yield Path(plain) / "work"


def _write_mirror(mirror: Path, debs: Sequence[Path], suite: str, arch: Arch) -> tuple[str, ...]:
    """Write a mirror with only `debs`, and return their names. It is not signed, since apt has verified the files."""
    pool, index = mirror / "pool", mirror / f"dists/{suite}/main/binary-{arch}"
    pool.mkdir(parents=True)
    index.mkdir(parents=True)
    names, stanzas = [], []
    for deb in sorted(debs):
        (pool / deb.name).symlink_to(deb.resolve())
        name, stanza = _stanza(deb)
        names.append(name)
        stanzas.append(stanza)
    packages = "".join(stanzas).encode()
    (index / "Packages").write_bytes(packages)
    (mirror / f"dists/{suite}/Release").write_text(
        f"Suite: {suite}\nCodename: {suite}\nComponents: main\nArchitectures: {arch}\nSHA256:\n"
        f" {sha256_bytes(packages)} {len(packages)} main/binary-{arch}/Packages\n"
    )
    return tuple(names)


def _stanza(deb: Path) -> tuple[str, str]:
    """Return (package, its stanza in Packages). Only packages for the first phase have the priority `required`."""
    try:
        control = run(("dpkg-deb", "-f", deb)).stdout
    except CommandError as error:
        raise UnableError(
            f"{deb.name} is not a package", where=str(deb), hint="remove the file and run again"
        ) from error
    lines = [line for line in control.splitlines() if not line.startswith("Priority:")]
    fields = dict(line.partition(":")[::2] for line in lines if not line.startswith(" "))
    name = fields["Package"].strip()
    first = fields.get("Essential", "").strip() == "yes" or name in REQUIRED
    lines += [
        f"Priority: {'required' if first else 'optional'}",
        f"Filename: pool/{deb.name}",
        f"Size: {deb.stat().st_size}",
        f"SHA256: {sha256_file(deb)}",
    ]
    return name, "\n".join(lines) + "\n\n"


# Folders that keep only their subfolders. debconf's answers are kept, because adding packages needs them.
EMPTIED = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/lib/apt/lists", "var/log", "var/tmp")
NOT_EMPTIED = re.compile(r"var/cache/debconf/(?:config|passwords|templates)\.dat")
# Folders that are completely empty.
BARE = ("dev", "proc", "run", "sys", "tmp", "var/tmp")
DROPPED = re.compile(
    r"etc/(?:hostname|resolv\.conf|machine-id|\.pwd\.lock|(?:passwd|group|shadow|gshadow|subuid|subgid)-)"
    r"|var/lib/dpkg/(?:.*-old|(?:lock|triggers/Lock).*)|debootstrap(?:/.*)?|root/\.cache(?:/.*)?"
)
SOURCES = "# Emptied: the stand-in base names no mirror. Builds bring the host's own sources.\n"
DAY = 86400


def write_tar(tree: Path, target: Path, data: StandIn) -> None:
    """Write `tree` to `target` as an uncompressed tar: sorted, with numeric owners, one mtime and hard links."""
    seen: dict[tuple[int, int], str] = {}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in _walk(tree):
            if _left_out(name, data):
                continue
            status = path.lstat()
            info = _info(name, status, data.epoch)
            if info is None:
                continue
            if stat.S_ISLNK(status.st_mode):
                info.linkname = str(path.readlink())
            first = seen.setdefault((status.st_dev, status.st_ino), name)
            if info.isreg() and first != name:
                info.type, info.linkname = tarfile.LNKTYPE, first
            if not info.isreg():
                archive.addfile(info)
                continue
            changed = _changed(name, path, data.epoch)
            if changed is not None:
                info.size = len(changed)
                archive.addfile(info, io.BytesIO(changed))
                continue
            info.size = status.st_size
            with path.open("rb") as stream:
                archive.addfile(info, stream)
    with target.open("rb") as written:
        os.fsync(written.fileno())  # it is renamed next, and must be complete


def _walk(tree: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative name, path) of every file and folder below `tree`, sorted, parents first."""
    with os.scandir(tree) as found:
        children = sorted(found, key=lambda child: child.name)
    for child in children:
        path = tree / child.name
        yield child.name, path
        if child.is_dir(follow_symlinks=False):
            yield from ((f"{child.name}/{name}", below) for name, below in _walk(path))


def _left_out(name: str, data: StandIn) -> bool:
    """Whether a path is left out: it is dropped, or it is in `leave_out` and not in `keep` or above a kept path."""
    if DROPPED.fullmatch(name) or any(name.startswith(f"{folder}/") for folder in BARE):
        return True
    if not any(fnmatch.fnmatchcase(f"/{name}", glob) for glob in data.leave_out):
        return False
    parts = f"/{name}".split("/")  # a folder above a kept path matches the first parts of its glob
    return not any(fnmatch.fnmatchcase("/".join(parts), "/".join(glob.split("/")[: len(parts)])) for glob in data.keep)


def _info(name: str, status: os.stat_result, epoch: int) -> tarfile.TarInfo | None:
    """Return the header of one entry; None for sockets, devices, and the content of emptied folders."""
    info = tarfile.TarInfo(name)
    info.mtime, info.uid, info.gid = epoch, status.st_uid, status.st_gid
    info.mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        return info
    if any(name.startswith(f"{folder}/") for folder in EMPTIED) and not NOT_EMPTIED.fullmatch(name):
        return None
    if stat.S_ISLNK(status.st_mode):
        info.type = tarfile.SYMTYPE
        return info
    return info if stat.S_ISREG(status.st_mode) else None


def _changed(name: str, path: Path, epoch: int) -> bytes | None:
    """Return the new content of a file in the image; None for an unchanged file."""
    if name == "etc/apt/sources.list":
        return SOURCES.encode()
    if name == "etc/shadow":  # shadow(5): the third field is the day of the last password change
        text = path.read_text()
        return re.sub(r"^([^:\n]*:[^:\n]*:)[^:\n]+", rf"\g<1>{epoch // DAY}", text, flags=re.MULTILINE).encode()
    return None
