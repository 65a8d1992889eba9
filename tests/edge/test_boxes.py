"""Boxes, really made: what is in them, what they leave, and how they end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cannery.sandbox.box import NOT_MADE, Box, Mount, box_command, work_folder
from cannery.sandbox.io import able
from cannery.sandbox.io.able import host_binds, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

with tempfile.TemporaryDirectory() as folder:
    WHY = why_not(Path(folder))
makes_boxes = pytest.mark.skipif(bool(WHY), reason=f"no boxes here: {WHY}")
ROOT = Path(__file__).parents[2]
# A process in a box that no other test has: it sleeps for so many seconds.
LONG = 100_000 + os.getpid()
PARENT = """\
import subprocess, sys
print(subprocess.Popen(sys.argv[1:]).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """Return an empty layer; the programs of this host are bound on it."""
    for name in ("layer", "mounts"):
        (tmp_path / name).mkdir()
    return tmp_path / "layer"


def box_of(layer: Path, *command: str) -> Box:
    """A box with this host's programs."""
    return Box((layer,), command, binds=host_binds())


def ran(box: Box, scratch: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a box to its end."""
    command = box_command(box, scratch)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)


def shell(layer: Path, script: str, box: Box | None = None) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a box."""
    return ran(replace(box or box_of(layer), command=("sh", "-c", script)), layer.with_name("mounts"))


def mounts_of_host() -> str:
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@makes_boxes
def test_pipes_and_exit_code_are_the_commands(layer: Path) -> None:
    done = ran(box_of(layer, "sh", "-c", "cat; echo no >&2; exit 7"), layer.with_name("mounts"), "in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in\n", "no\n")
    assert list(layer.iterdir()) == list(layer.with_name("mounts").iterdir()) == []


@makes_boxes
def test_a_command_that_a_signal_ends_has_the_shells_code(layer: Path) -> None:
    assert shell(layer, "kill -TERM $$").returncode == 128 + signal.SIGTERM


@makes_boxes
def test_a_command_that_is_not_there_ends_as_in_a_shell(layer: Path) -> None:
    done = ran(box_of(layer, "nothing-of-this-name"), layer.with_name("mounts"))
    assert done.returncode == 127
    assert "nothing-of-this-name" in done.stderr


@makes_boxes
def test_environment_user_and_folder_are_the_boxes_own(layer: Path) -> None:
    box = replace(box_of(layer), env={"WORDS": "a 'b' $c\nd"}, user=(1234, 56), workdir="/made/here")
    done = shell(layer, 'echo "$WORDS"; id -u; id -g; pwd; env | cut -d= -f1 | sort', box)
    assert done.stdout.splitlines() == [
        "a 'b' $c",
        "d",
        "1234",
        "56",
        "/made/here",
        "HOME",
        "PATH",
        "PWD",
        "WORDS",
        "d",
    ]


@makes_boxes
def test_its_processes_are_the_only_ones_it_sees_and_it_is_no_more_than_a_container(layer: Path) -> None:
    done = shell(layer, "ls -d /proc/[0-9]* | wc -l; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    count, effective, bounding, privileges = done.stdout.split("\n")[:4]
    assert int(count) <= 4
    # What `docker run debian grep Cap /proc/self/status` prints.
    assert effective.split()[1] == bounding.split()[1] == "00000000a80425fb"
    assert privileges.split()[1] == "1"


@makes_boxes
def test_root_of_a_box_cannot_reach_the_hosts(layer: Path) -> None:
    """The classic way out of a chroot, the root of process 1, device nodes of one's own, sysctl and mounts."""
    (layer / "mark").touch()
    escape = (
        "import os; os.mkdir('/x'); here = os.open('/', os.O_RDONLY); os.chroot('/x'); os.fchdir(here)\n"
        "for _ in range(20): os.chdir('..')\n"
        "os.chroot('.'); print(os.path.exists('/mark'), os.path.exists('/work'), os.path.exists('/root'))"
    )
    done = ran(box_of(layer, "/usr/bin/python3", "-c", escape), layer.with_name("mounts"))
    assert done.stdout == "True False False\n", done.stderr
    tried = (
        "ls /proc/1/root/ 2>&1; mknod /disk b 1 0; cat /disk 2>&1; mknod /dev/own c 1 3; echo >/dev/own;"
        "echo x >/proc/sys/kernel/hostname; umount / ; mount -t tmpfs t /mnt; cat /proc/mounts | wc -l"
    )
    done = shell(layer, f"exec 2>&1; mkdir /mnt; {tried}")
    assert done.stdout.lower().count("denied") + done.stdout.count("Read-only") >= 5, done.stdout


@makes_boxes
def test_without_network_there_is_lo_alone_and_it_is_up(layer: Path) -> None:
    served = (
        "import socket; s = socket.create_server(('localhost', 0)); "
        "c = socket.create_connection(s.getsockname()); print([n for _, n in socket.if_nameindex()])"
    )
    done = ran(box_of(layer, "/usr/bin/python3", "-c", served), layer.with_name("mounts"))
    assert done.stdout == "['lo']\n", done.stderr


@makes_boxes
def test_with_network_it_is_the_hosts(layer: Path) -> None:
    mine = Path("/proc/self/ns/net").readlink()
    there = "readlink /proc/self/ns/net; cat /etc/resolv.conf; cat /etc/hosts"
    done = shell(layer, there, replace(box_of(layer), network=True))
    assert done.stdout.startswith(f"{mine}\n")
    for name in ("resolv.conf", "hosts"):
        assert Path("/etc", name).read_text(encoding="utf-8") in done.stdout
    assert not shell(layer, "readlink /proc/self/ns/net").stdout.startswith(f"{mine}\n")


@makes_boxes
def test_a_command_outside_is_the_hosts_and_has_the_layers_as_a_folder(layer: Path) -> None:
    (layer / "bin").mkdir()
    (layer / "bin/cat").write_text("of another machine")
    before = mounts_of_host()
    box = Box((layer,), ("/bin/cat", "root/bin/cat"), outside=True)
    done = ran(box, layer.with_name("mounts"))
    assert (done.returncode, done.stdout) == (0, "of another machine"), done.stderr
    assert mounts_of_host() == before


@makes_boxes
def test_seventy_layers_are_one_root(layer: Path) -> None:
    layers = [layer.with_name(f"{number:064x}") for number in range(70)]
    for number, one in enumerate(layers):
        one.mkdir()
        (one / f"of-{number}").write_text(str(number), encoding="utf-8")
        (one / "highest").write_text(str(number), encoding="utf-8")
    os.mknod(layers[69] / "of-3", stat.S_IFCHR, 0)
    done = shell(layer, "cat /highest; ls / | grep -c ^of-; ls /of-3", Box(tuple(layers), (), binds=host_binds()))
    assert done.stdout == "6969\n"
    assert done.returncode != 0


@makes_boxes
def test_changes_are_in_the_upper_folder_as_overlay_keeps_them(layer: Path) -> None:
    (layer / "gone").touch()
    (layer / "kept").write_text("low", encoding="utf-8")
    upper = layer.with_name("upper")
    box = replace(box_of(layer), upper=upper)
    assert shell(layer, "rm /gone; echo new >/new; echo >>/kept", box).returncode == 0
    gone = (upper / "gone").stat()
    assert (stat.S_ISCHR(gone.st_mode), gone.st_rdev) == (True, 0)
    assert (upper / "new").read_text(encoding="utf-8") == "new\n"
    assert (layer / "kept").read_text(encoding="utf-8") == "low"
    assert work_folder(upper).is_dir()
    # Once more on the same folder: they are still there.
    assert shell(layer, "cat /new; ls /gone", box).stdout == "new\n"


@makes_boxes
def test_binds_are_what_they_say(layer: Path, tmp_path: Path) -> None:
    for name in ("folder", "writable"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("text", encoding="utf-8")
    binds = (
        *host_binds(),
        Mount(str(tmp_path / "folder"), "/run/a", read_only=True),
        Mount(str(tmp_path / "file"), "/run/b/file", read_only=True),
        Mount(str(tmp_path / "writable"), "/out"),
    )
    box = Box((layer,), (), binds=binds, tmpfs=("/run",))
    done = shell(layer, "cat /run/b/file; echo >/run/a/x; echo >/run/b/file; echo >/run/c; echo made >/out/x", box)
    assert done.stdout == "text"
    assert done.stderr.count("Read-only file system") == 2
    assert (tmp_path / "writable/x").read_text(encoding="utf-8") == "made\n"
    assert list((tmp_path / "folder").iterdir()) == []


@makes_boxes
def test_a_link_of_the_image_does_not_lead_out_of_the_box(layer: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (layer / "absolute").symlink_to(outside)
    (layer / "relative").symlink_to("../" * 20 + str(outside)[1:])
    for name in ("absolute", "relative"):
        box = replace(
            box_of(layer), binds=(*host_binds(), Mount(str(tmp_path / "layer"), f"/{name}/made", read_only=True))
        )
        done = shell(layer, f"ls {outside}", box)
        assert (done.returncode, done.stdout) == (0, "made\n"), done.stderr
        assert list(outside.iterdir()) == []


@makes_boxes
def test_a_device_of_the_host_works_in_it(layer: Path) -> None:
    box = replace(box_of(layer), devices=("/dev/null",), shm_size=1 << 20)
    done = shell(layer, "echo x >/dev/null; head -c 3 /dev/zero | wc -c; df -k /dev/shm | tail -n 1; tty", box)
    assert done.stdout.splitlines()[0] == "3"
    assert done.stdout.splitlines()[1].split()[1] == "1024"


@makes_boxes
def test_a_box_that_cannot_be_made_says_so_with_its_own_code(layer: Path) -> None:
    done = ran(box_of(layer.with_name("nothing"), "true"), layer.with_name("mounts"))
    assert done.returncode == NOT_MADE
    assert "overlay" in done.stderr


def sleepers() -> list[int]:
    """The processes of this host that sleep as this test's box does."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", str(LONG).encode()]:
            found.append(int(path.parent.name))
    return found


def awaited(wanted: bool) -> None:
    """Wait until the box's process is there, or is not."""
    deadline = time.monotonic() + 20
    while bool(sleepers()) is not wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Make sure that no box of an earlier test is there."""
    assert sleepers() == []
    yield
    for pid in sleepers():
        os.kill(pid, signal.SIGKILL)


@makes_boxes
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_box_ends_with_its_process(layer: Path, ending: signal.Signals) -> None:
    before = mounts_of_host()
    script = f"sleep {LONG} & setsid sleep {LONG} & sleep {LONG}"
    command = box_command(box_of(layer, "sh", "-c", script), layer.with_name("mounts"))
    with subprocess.Popen(command) as process:
        awaited(wanted=True)
        process.send_signal(ending)
        assert process.wait(20) == -ending
    awaited(wanted=False)
    assert mounts_of_host() == before


@makes_boxes
@pytest.mark.usefixtures("quiet")
def test_a_box_ends_with_its_parent(layer: Path) -> None:
    before = mounts_of_host()
    command = box_command(box_of(layer, "sleep", str(LONG)), layer.with_name("mounts"))
    words = (sys.executable, "-c", PARENT, *command)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        awaited(wanted=True)
        parent.kill()
    awaited(wanted=False)
    assert mounts_of_host() == before
    layer.with_name("mounts").rmdir()


@makes_boxes
@pytest.mark.usefixtures("quiet")
def test_what_runs_on_in_the_background_ends_with_the_command(layer: Path) -> None:
    assert shell(layer, f"setsid sleep {LONG} >/dev/null 2>&1 &").returncode == 0
    awaited(wanted=False)


def test_who_is_not_root_gets_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo" in why_not(tmp_path)


def test_a_host_without_the_programs_gets_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(able, "PROGRAMS", ("sh", "no-such-program"))
    assert why_not(tmp_path).startswith("not found: no-such-program: ")


@pytest.mark.parametrize("reason", ["", "mount: refused"])
def test_only_that_boxes_are_made_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """A host that makes none is tried each time, and so is one where what decides has changed."""
    tries: list[bool] = []

    def tried(_folder: Path, *, in_memory: bool) -> str:
        tries.append(in_memory)
        return reason

    monkeypatch.setattr(able, "_missing", lambda: "")
    monkeypatch.setattr(able, "_try_box", tried)
    wanted = [1, 1, 2] if not reason else [2, 4, 6]
    for count, situation in zip(wanted, ("here", "here", "elsewhere"), strict=True):
        monkeypatch.setattr(able, "_situation", lambda _folder, found=situation: found)
        able.why_not.cache_clear()
        assert bool(able.why_not(tmp_path)) is bool(reason)
        assert len(tries) == count


def test_what_decides_is_known_of_linux(tmp_path: Path) -> None:
    found = able._situation(tmp_path)
    assert found == able._situation(tmp_path)
    assert "CapEff" in found
    assert not able._situation(tmp_path / "none")


# What a host answers that makes no namespaces, as an ordinary container does.
REFUSED = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all")
ASKED = "import pathlib, sys; from cannery.sandbox.io.able import why_not; print(why_not(pathlib.Path(sys.argv[1])))"


@makes_boxes
def test_a_container_without_the_capability_gets_the_next_step(tmp_path: Path) -> None:
    words = (*REFUSED, sys.executable, "-c", ASKED, tmp_path)
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "--privileged" in done.stdout
    assert "Operation not permitted" in done.stdout


@makes_boxes
def test_a_cache_that_is_on_an_overlay_itself_is_the_reason(layer: Path, tmp_path: Path) -> None:
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={layer},upperdir={tmp_path / 'upper'},workdir={tmp_path / 'work'}"
    script = 'mount -t overlay -o "$1" overlay "$2" && exec "$3" -c "$4" "$2"'
    words = ("unshare", "--mount", "sh", "-c", script, "sh", options, tmp_path / "merged", sys.executable, ASKED)
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "CANNERY_CACHE" in done.stdout
    assert str(tmp_path / "merged") in done.stdout
