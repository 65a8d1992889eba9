"""A box: a command on the layers of an image, in its own namespaces, made by programs of util-linux.

The shell that `box_command` starts makes mounts in its own mount namespace, below a tmpfs on `scratch`, moves the box's
root over `/` as switch_root(8) does, and starts the command with only Docker's capabilities. The shell is process 1 of
the box. Each process ends with its parent, and the kernel removes the mounts with the last process: after a kill only
the empty folder `scratch` is left.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import PurePath

# The exit code if the box itself cannot be made; Docker uses the same one for a container.
NOT_MADE = 125
# Programs of the host that make a box: of util-linux, coreutils and the shell, which Debian always has.
PROGRAMS = ("setpriv", "unshare", "mount", "env", "mkdir", "ln", "realpath", "sh")
# Variables of a command that the image does not set (moby, oci/defaults.go and containers).
DEFAULT_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
# Docker's default capabilities (moby, oci/caps/defaults.go).
CAPABILITIES = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service"),
    *("net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# 64 MiB, as Docker.
SHM_SIZE = 64 << 20

# It ends with its parent, and at SIGTERM, which unshare itself ignores. The command handles Ctrl-C.
_OUTER = 'trap : INT; setpriv --pdeathsig KILL -- unshare "$@"; exit $?'

_PRELUDE = f"""\
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
trap 'exit {NOT_MADE}' EXIT

# Set `place` to where the path $1 of the box is on the host. No link of the image leads out of it.
find_place() {{
    place=$(realpath -m -- "$root$1")
    case $place in "$root" | "$root"/*) return ;; esac
    place=$(realpath -m -- "$root$place")
    case $place in "$root"/*) return ;; esac
    echo "box: the image has a link out of it at $1" >&2
    exit {NOT_MADE}
}}

# Mount the file or folder $1 at $2, with more options $3.
bind() {{
    find_place "$2"
    if [ -d "$1" ]; then
        [ -d "$place" ] || mkdir -p "$place"
    else
        [ -d "${{place%/*}}" ] || mkdir -p "${{place%/*}}"
        [ -e "$place" ] || : >"$place"
    fi
    mount -o "bind$3" "$1" "$place"
}}

# Mount a file system of type $1 with options $2 at $3.
make() {{
    find_place "$3"
    [ -d "$place" ] || mkdir -p "$place"
    mount -t "$1" -o "$2" "$1" "$place"
}}
"""

_PROC = """\
make proc nosuid,nodev,noexec /proc
for name in bus fs irq sys sysrq-trigger; do
    [ ! -e "$root/proc/$name" ] || bind "$root/proc/$name" "/proc/$name" ,ro
done
# A user namespace that has the host's network may not mount a sysfs: it gets the host's.
make sysfs ro,nosuid,nodev,noexec /sys 2>/dev/null || mount -o rbind,ro /sys "$place" || echo 'box: it has no /sys' >&2
"""

_DEV = """\
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
"""

# The names `localhost` and `box`. A box with the host's network gets the host's names too.
_HOSTS = """\
echo '127.0.0.1 localhost box' >hosts
echo '::1 localhost' >>hosts
"""

# Sets the host name, and makes links 0, 1, … to its arguments. One process for each would take a fifth of a box's time.
# In a user namespace the name cannot be set in /proc/sys.
_LINKS = (
    "import os, socket, sys; socket.sethostname('box'); "
    "[os.symlink(path, str(number)) for number, path in enumerate(sys.argv[1:])]"
)

# Brings `lo` up (SIOCSIFFLAGS with IFF_UP). Linux has neither a file nor a util-linux program for it.
_LO_UP = (
    "import fcntl, socket, struct; "
    "fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, struct.pack('16sH14x', b'lo', 1))"
)


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host, and where it is in a box or a container."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True)
class Box:
    """A command, and what it runs in.

    `lowers` are unpacked layers, the lowest first. Changes go to the folder `upper`, whose overlay keeps notes in
    `upper.work` beside it; with None they are in memory, and gone with the box. `tmpfs` are paths of empty file systems
    in memory, on which `binds` may be. `user` is uid and gid. Without `network` the box has only its own `lo`.
    `devices` are paths of the host's devices in `/dev`; `shm_size` is the size of `/dev/shm` in bytes.

    With `outside` the command is a program of the host. It starts in a folder whose `root` has the layers, and nothing
    else is mounted.
    """

    lowers: tuple[PurePath, ...]
    command: tuple[str, ...]
    upper: PurePath | None = None
    binds: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: tuple[int, int] = (0, 0)
    workdir: str = "/"
    network: bool = False
    devices: tuple[str, ...] = ()
    shm_size: int = SHM_SIZE
    outside: bool = False


def work_folder(upper: PurePath) -> PurePath:
    """Return the folder in which an overlay keeps its notes about `upper`; remove both together."""
    return upper.with_name(f"{upper.name}.work")


def box_command(box: Box, scratch: PurePath) -> tuple[str, ...]:
    """Return the words that start the command of `box`: root runs them like any command.

    They pass on their stdin, stdout and stderr, and end with its exit code, or with `NOT_MADE` and a reason on
    stderr. All processes in the box end with the process of these words, or with the thread that started it. `scratch`
    is an empty folder for this run alone. It stays empty: the box keeps nothing in it.
    """
    namespaces = ("--mount", "--propagation", "slave", "--pid", "--ipc", "--uts", *(() if box.network else ("--net",)))
    started = ("sh", "-c", box_script(box, scratch), "box", *box.command)
    outer = ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _OUTER, "box")
    return (*outer, *namespaces, "--fork", "--kill-child", "--", *started)


def box_script(box: Box, scratch: PurePath) -> str:
    """Return the shell script that makes a box in new namespaces and runs its arguments there, as a command."""
    inside = ('trap - EXIT\nexec "$@"',) if box.outside else (*_mounts(box), _command(box))
    parts = (_PRELUDE, *_root(box, scratch), *inside)
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def _root(box: Box, scratch: PurePath) -> Iterator[str]:
    """Yield the lines that put the layers together. Overlay's options end at 4,096 bytes: a layer is a short link."""
    where = shlex.quote(str(scratch))
    yield f"mount -t tmpfs -o mode=700 tmpfs {where}"
    yield f"cd {where}"
    yield "root=$(pwd -P)/root\nmkdir root"
    # Overlay refuses the same folder twice. The lower one can go: the higher one hides all of it.
    lowers = list(dict.fromkeys(reversed(box.lowers)))
    yield shlex.join([sys.executable, "-ISc", _LINKS, *map(str, lowers)])
    if box.upper is None:
        yield "mkdir upper work"
    else:
        yield f"mkdir -p {shlex.quote(str(box.upper))} {shlex.quote(str(work_folder(box.upper)))}"
        yield f"ln -s {shlex.quote(str(box.upper))} upper"
        yield f"ln -s {shlex.quote(str(work_folder(box.upper)))} work"
    # In a user namespace, which does not have all ids, an overlay keeps its notes in attributes of the user.
    yield 'read -r _ _ ids </proc/self/uid_map\nuser=\n[ "$ids" = 4294967295 ] || user=,userxattr'
    # `upper` is read as a layer: a renamed folder must be copied, and a changed file must be whole.
    options = "nodev,redirect_dir=nofollow,metacopy=off,index=off,upperdir=upper,workdir=work"
    yield f"mount -t overlay -o {options}$user,lowerdir={':'.join(map(str, range(len(lowers))))} overlay root\n"


def _mounts(box: Box) -> Iterator[str]:
    """Yield the lines that mount everything but the layers."""
    yield _PROC
    # Devices are bind mounts. A device that the command makes itself cannot be opened, here or on the layers.
    yield "make tmpfs nosuid,nodev,noexec,mode=755 /dev"
    yield "make devpts nosuid,noexec,newinstance,ptmxmode=0666,mode=0620 /dev/pts"
    yield f"make tmpfs nosuid,nodev,mode=1777,size={box.shm_size} /dev/shm"
    devices = [*(f"/dev/{name}" for name in DEVICES), *box.devices]
    yield from (f"bind {shlex.quote(path)} {shlex.quote(path)} ''" for path in devices)
    yield _DEV
    yield _HOSTS
    if box.network:
        yield "cat /etc/hosts >>hosts\n[ ! -e /etc/resolv.conf ] || bind /etc/resolv.conf /etc/resolv.conf ,ro"
    else:
        yield shlex.join([sys.executable, "-ISc", _LO_UP])
    yield "bind hosts /etc/hosts ''\n"
    yield from (f"make tmpfs nosuid,nodev {shlex.quote(path)}" for path in box.tmpfs)
    for one in box.binds:
        options = ",nodev,ro" if one.read_only else ",nodev"
        yield f"bind {shlex.quote(one.source)} {shlex.quote(one.target)} {options}"


def _command(box: Box) -> str:
    """Return the lines that start the command. The host's programs are found before its variables are set.

    The image's own `env` sets the variables: they may name a library (LD_PRELOAD) that the host's programs cannot load.
    """
    uid, gid = box.user
    kept = ",".join(["-all", *(f"+{name}" for name in CAPABILITIES)])
    env = shlex.join(f"{name}={value}" for name, value in {**DEFAULT_ENV, **box.env}.items())
    return f"""\
find_place {shlex.quote(box.workdir)}
mkdir -p "$place"
setpriv=$(command -v setpriv)
unshare=$(command -v unshare)
cd "$root"
mount --no-mtab --move . /
trap - EXIT
set +e
"$setpriv" --no-new-privs --inh-caps=-all --bounding-set={kept} -- \\
    "$unshare" --root . --wd {shlex.quote(box.workdir)} --setgid {gid} --setuid {uid} -- \\
    /usr/bin/env -i {env} "$@"
exit $?
"""
