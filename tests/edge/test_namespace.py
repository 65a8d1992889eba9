"""User namespaces: what a user who is not root makes there has the bytes that root makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cannery.commands import place as module
from cannery.context import Context
from cannery.errors import UnableError
from cannery.util.io import namespace
from cannery.util.io.namespace import AS_ROOT, can_be_root, is_in_namespace
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# A user that Debian has always had, and ids for it that no test's host has in use.
USER, IDS = "daemon", "daemon:2000000:65536\n"
# Unpacks a layer, changes it in a box, and prints the digest of the changes as a layer.
PROGRAM = """\
import hashlib, io, subprocess, sys, tarfile
from pathlib import Path
from cannery.assemble.io.folder import write_changes
from cannery.assemble.io.sink import TarSink
from cannery.sandbox.box import Box, box_command
from cannery.sandbox.io.able import host_binds
from cannery.store.io.unpack import unpack

def layer(folder, *members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, kind, owner in members:
            one = tarfile.TarInfo(name)
            one.type, one.mode, one.mtime, one.uid, one.gid = kind, 0o755, 1_700_000_000, owner, owner
            archive.addfile(one)
    folder.mkdir()
    unpack([stream.getvalue()], folder)
    return folder

top = Path(sys.argv[1])
(top / "mounts").mkdir()
lowers = (
    layer(top / "1", ("srv", tarfile.DIRTYPE, 0), ("srv/gone", tarfile.REGTYPE, 33), ("old", tarfile.DIRTYPE, 0),
          ("old/hidden", tarfile.REGTYPE, 0), ("etc", tarfile.DIRTYPE, 0), ("etc/kept", tarfile.REGTYPE, 7)),
    layer(top / "2", ("srv/.wh.gone", tarfile.REGTYPE, 0), ("old/.wh..wh..opq", tarfile.REGTYPE, 0)),
)
script = '''
hostname
stat --format='%u %g %a %n' /etc/kept /old/* /srv/* 2>/dev/null
rm /etc/kept; rm -r /old; mkdir /old; echo new >/old/new; chown 33:101 /old/new
touch --date=@1700000000 /old/new /old /etc /srv
'''
box = Box(lowers, ("sh", "-c", script), upper=top / "changes", binds=host_binds())
subprocess.run(box_command(box, top / "mounts"), check=True)
# With the host's network. Libraries count cores in /sys.
script = "cat /sys/devices/system/cpu/possible; mkdir /sys/x 2>/dev/null || touch /sys/kernel/x 2>/dev/null || echo ro"
box = Box(lowers, ("sh", "-c", script), binds=host_binds(), network=True)
seen = subprocess.run(box_command(box, top / "mounts"), check=True, capture_output=True, text=True)
print(seen.stdout, seen.stderr)
made = io.BytesIO()
left_out = "/etc/hosts /usr /bin /sbin /lib /lib32 /lib64 /proc /sys /dev".split()
write_changes(top / "changes", lowers, left_out, TarSink(made))
made.seek(0)
print(tarfile.open(fileobj=made).getnames())
print(hashlib.sha256(made.getvalue()).hexdigest())
"""
# In mounts of its own: gives the user ids, and lets any user read this Python and this checkout, wherever they are.
MOUNTS = """\
set -e
mount --bind ids /etc/subuid
mount --bind ids /etc/subgid
mount --bind "$1" python
mount --bind "$2" packages
mount --bind "$3" checkout
shift 3
exec "$@"
"""


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder in which any user may write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for made in ("python", "packages", "checkout", "root", "user"):
            (folder / made).mkdir()
            (folder / made).chmod(0o777)
        folder.chmod(0o777)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "ids").write_text(IDS)
        yield folder


def output_of(folder: Path, place: str, *before: str) -> str:
    """Run the program in `folder` and return what it prints."""
    python = folder / "python/bin" / Path(sys.executable).resolve().name
    mounts = ("unshare", "--mount", "sh", "-c", MOUNTS, "sh", sys.base_prefix, sysconfig.get_path("purelib"), str(ROOT))
    command = (*mounts, *before, python, "-B", folder / "program.py", folder / place)
    env = {"PYTHONPATH": f"{folder / 'checkout'}:{folder / 'packages'}", "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="it compares with what root makes")
def test_a_user_s_layer_has_the_bytes_of_root_s(folder: Path) -> None:
    if shutil.which("newuidmap") is None:
        assert not os.environ.get("CI"), "install uidmap"
        pytest.skip("newuidmap (package uidmap) is not here")
    by_root = output_of(folder, "root")
    by_user = output_of(folder, "user", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *AS_ROOT)
    cores = Path("/sys/devices/system/cpu/possible").read_text()
    assert by_root.startswith(f"box\n7 7 755 /etc/kept\n{cores}ro\n \n[")
    assert "'etc/.wh.kept'" in by_root
    assert "'old/.wh..wh..opq', 'old/new'" in by_root
    assert by_user == by_root


def test_an_owner_that_a_namespace_does_not_have_is_reported(tmp_path: Path) -> None:
    program = PROGRAM.partition("top = ")[0] + f"layer(Path({str(tmp_path / 'made')!r}), ('file', tarfile.REGTYPE, 5))"
    command = ("unshare", "--user", "--map-root-user", "--", sys.executable, "-c", program)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "UnableError" in done.stderr
    assert "Cannot change ownership to uid 5" in done.stderr
    assert "this user has too few ids in /etc/subuid and /etc/subgid: give it 65536" in done.stderr


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("         0          0 4294967295\n", False), ("0 1000 1\n1 100000 65536\n", True), ("0 100000 65536\n", True)],
)
def test_a_namespace_is_known_by_its_users(tmp_path: Path, text: str, is_one: bool) -> None:
    (tmp_path / "uid_map").write_text(text)
    assert is_in_namespace(tmp_path / "uid_map") is is_one
    assert is_in_namespace(tmp_path / "missing") is False


def started(monkeypatch: pytest.MonkeyPatch, context: Context, *, uid: int = 1000, able: bool = True) -> list[Any]:
    """Return the commands in whose place this process would be."""
    found: list[Any] = []
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(module, "can_be_root", lambda: able)
    monkeypatch.setattr(os, "execvpe", lambda *words: found.append(words))
    monkeypatch.setattr(sys, "orig_argv", ["python3", "build.py", "image", "quickstart"])
    module.enter_namespace(context, "make", None)
    return found


def no_engine(*_words: object, **_more: object) -> None:
    raise module.NoEngineError("no Docker engine is running")


def test_a_user_without_an_engine_becomes_root_of_a_namespace(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_engine", no_engine)
    ((program, words, env),) = started(monkeypatch, context)
    assert (program, words[-3:]) == ("unshare", ("build.py", "image", "quickstart"))
    assert words[: len(AS_ROOT)] == AS_ROOT
    assert env["CANNERY_PROGRAM"] == "make"
    assert started(monkeypatch, context, uid=0) == []
    assert started(monkeypatch, context, able=False) == []


def test_with_an_engine_and_with_one_that_is_silent_the_user_stays(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_engine", lambda *_words, **_more: object())
    monkeypatch.setattr(module, "docker_client", lambda _engine: "client")
    assert started(monkeypatch, context) == []

    def silent(*_words: object, **_more: object) -> None:
        raise UnableError("it does not answer")

    monkeypatch.setattr(module, "find_engine", silent)
    assert started(monkeypatch, context) == []


def test_root_needs_none_and_no_newuidmap_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not can_be_root()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(namespace.shutil, "which", lambda _name: None)
    assert not can_be_root()
