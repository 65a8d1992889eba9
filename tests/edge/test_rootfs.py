"""The Debian system of the stand-in: its tar, its mirror, and what happens when a run cannot go on."""

from __future__ import annotations

import os
import stat
import subprocess
import tarfile
from typing import TYPE_CHECKING

import factories
import pytest

from cannery.errors import UnableError
from cannery.standin.io import rootfs
from cannery.standin.io.rootfs import check_space, ensure_rootfs, is_registered, rootfs_key, write_tar
from cannery.vocab import Arch

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.catalog.catalog import StandIn

EPOCH = 1735689600  # 20089 days
REGISTERED = """\
enabled
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: {flags}
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""


def data(**changes: object) -> StandIn:
    more = {"epoch": EPOCH, "leave_out": ("/usr/share/doc/*",), "keep": ("/usr/share/doc/*/copyright",), **changes}
    return factories.standin().model_copy(update=more)


def system(root: Path, *, noise: str = "") -> Path:
    """A folder that looks like a fresh system; `noise` is what differs from run to run and host to host."""
    files = {
        "etc/passwd": "root:x:0:0::/root:/bin/bash\n",
        "etc/passwd-": noise,
        "etc/shadow": f"root:*:{20000 + len(noise)}:0:99999:7:::\ndaemon:*::0:99999:7:::\n",
        "etc/hostname": f"host{noise}\n",
        "etc/resolv.conf": f"nameserver {noise}\n",
        "etc/machine-id": noise,
        "etc/apt/sources.list": f"deb http://mirror{noise}.example/ bookworm main\n",
        "usr/bin/perl": "perl",
        "usr/share/doc/a/changelog": "text",
        "usr/share/doc/a/copyright": "licence",
        "usr/share/docs/kept": "not a doc",
        "var/cache/apt/pkgcache.bin": noise,
        "var/cache/debconf/config.dat": "answers",
        "var/cache/debconf/config.dat-old": noise,
        "var/lib/apt/lists/x_Packages": noise,
        "var/lib/dpkg/status": "Package: a\n",
        "var/lib/dpkg/status-old": noise,
        "var/log/dpkg.log": noise,
        "tmp/left": noise,
        "debootstrap/debootstrap.log": noise,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "usr/bin/perl").chmod(0o755)
    os.link(root / "usr/bin/perl", root / "usr/bin/perl5.36.0")
    (root / "bin").symlink_to("usr/bin")
    os.mkfifo(root / "var/log/pipe")
    return root


@pytest.fixture(name="members")
def _members(tmp_path: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    write_tar(system(tmp_path / "tree", noise="x"), tmp_path / "out.tar", data())
    with tarfile.open(tmp_path / "out.tar") as archive:
        return {m.name: (m, archive.extractfile(m).read() if m.isreg() else b"") for m in archive}


def test_two_runs_on_two_hosts_give_the_same_tar(tmp_path: Path) -> None:
    for run, noise in (("a", "x"), ("b", "longer noise")):
        write_tar(system(tmp_path / run, noise=noise), tmp_path / f"{run}.tar", data())
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_nothing_of_the_run_or_the_host_is_in_it(members: dict[str, tuple[tarfile.TarInfo, bytes]]) -> None:
    wanted = {"etc/passwd", "etc/shadow", "etc/apt/sources.list", "usr/bin/perl", "usr/bin/perl5.36.0", "bin"}
    wanted |= {
        "usr/share/doc/a/copyright",
        "usr/share/docs/kept",
        "var/lib/dpkg/status",
        "var/cache/debconf/config.dat",
    }
    assert {name for name, (member, _) in members.items() if not member.isdir()} == wanted
    assert {"var/log", "var/lib/apt/lists", "var/cache/apt", "tmp"} <= members.keys()
    assert b"example" not in members["etc/apt/sources.list"][1]


def test_links_and_modes_survive(members: dict[str, tuple[tarfile.TarInfo, bytes]]) -> None:
    assert members["bin"][0].linkname == "usr/bin"
    assert members["usr/bin/perl"][0].mode == 0o755
    assert (members["usr/bin/perl5.36.0"][0].islnk(), members["usr/bin/perl5.36.0"][0].linkname) == (
        True,
        "usr/bin/perl",
    )


def test_times_are_fixed_and_passwords_dated(members: dict[str, tuple[tarfile.TarInfo, bytes]]) -> None:
    assert {member.mtime for member, _ in members.values()} == {EPOCH}
    assert members["etc/shadow"][1] == b"root:*:20089:0:99999:7:::\ndaemon:*::0:99999:7:::\n"


def test_names_come_sorted_within_their_folder(members: dict[str, tuple[tarfile.TarInfo, bytes]]) -> None:
    names = list(members)
    assert [n for n in names if "/" not in n] == sorted(n for n in names if "/" not in n)
    assert names.index("usr/share") < names.index("usr/share/docs")


def deb(folder: Path, name: str, fields: str = "") -> Path:
    root = folder / name
    (root / "DEBIAN").mkdir(parents=True)
    head = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nPriority: important\n"
    (root / "DEBIAN/control").write_text(f"{head}{fields}Description: short\n more\n")
    path = folder / f"{name}_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, path], check=True, capture_output=True)
    return path


def test_mirror_holds_exactly_the_packages_with_their_hashes(tmp_path: Path) -> None:
    debs = [deb(tmp_path, "b", "Essential: yes\n"), deb(tmp_path, "a"), deb(tmp_path, "mawk")]
    assert rootfs._write_mirror(tmp_path / "mirror", debs, "bookworm", Arch.ARM64) == ("a", "b", "mawk")
    packages = (tmp_path / "mirror/dists/bookworm/main/binary-arm64/Packages").read_text()
    stanzas = {s.split("\n")[0].split()[1]: s for s in packages.rstrip("\n").split("\n\n")}
    assert {n: "Priority: required" in s for n, s in stanzas.items()} == {"a": False, "b": True, "mawk": True}
    assert "Priority: important" not in packages
    assert f"SHA256: {rootfs.sha256_file(debs[1])}" in stanzas["a"]
    release = (tmp_path / "mirror/dists/bookworm/Release").read_text()
    assert f" {rootfs.sha256_bytes(packages.encode())} {len(packages)} main/binary-arm64/Packages" in release
    assert (tmp_path / "mirror/pool/a_1_all.deb").read_bytes() == debs[1].read_bytes()


def test_what_is_no_package_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_text("no")
    with pytest.raises(UnableError, match=r"x\.deb is not a package"):
        rootfs._write_mirror(tmp_path / "mirror", [tmp_path / "x.deb"], "bookworm", Arch.AMD64)


def test_key_follows_what_is_in_it() -> None:
    keys = {
        rootfs_key(data(), Arch.AMD64),
        rootfs_key(data(), Arch.ARM64),
        rootfs_key(data(packages=("python3", "git")), Arch.AMD64),
        rootfs_key(data(epoch=1), Arch.AMD64),
        rootfs_key(data(schema_number=2), Arch.AMD64),
    }
    assert len(keys) == 5
    assert rootfs_key(data(folders=("opp",)), Arch.AMD64) == rootfs_key(data(), Arch.AMD64)


@pytest.mark.parametrize(("flags", "able"), [("PF", True), ("P", False)])
def test_qemu_counts_only_when_it_works_in_a_chroot(tmp_path: Path, flags: str, *, able: bool) -> None:
    (tmp_path / "qemu-aarch64").write_text(REGISTERED.format(flags=flags))
    (tmp_path / "status").write_text("enabled\n")
    assert is_registered(Arch.ARM64, tmp_path) is able
    assert not is_registered(Arch.AMD64, tmp_path)
    (tmp_path / "qemu-aarch64").write_text(REGISTERED.format(flags=flags).replace("enabled", "disabled"))
    assert not is_registered(Arch.ARM64, tmp_path)


def test_too_little_space_says_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match=r"9000000\.0 GB are needed .*, \d+\.\d GB are free"):
        check_space(tmp_path, 9 * 10**15)


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host as root with packages, whose debootstrap is `fake` below the returned folder (through setpriv)."""
    packages = [deb(tmp_path, "a", "Essential: yes\n")]
    tool = deb(tmp_path, "debootstrap")
    monkeypatch.setattr(rootfs, "fetch_debs", lambda names, **_: (tool,) if names == ("debootstrap",) else packages)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    return tmp_path


def fake_setpriv(host: Path, script: str) -> None:
    path = host / "bin/setpriv"
    path.write_text(
        f'#!/bin/sh\necho "$@" >> {host}/calls\nfor last; do before=$target; target=$last; done\n{script}\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


GOOD = """\
case "$*" in *compileall*) exit 0;; esac
mkdir -p "$before/etc" "$before/usr/lib/python3.11/__pycache__"
echo root > "$before/etc/passwd"
touch "$before/usr/lib/python3.11/__pycache__/x.pyc"
"""


def make(host: Path, arch: Arch = Arch.AMD64) -> tuple[Path, list[str]]:
    said: list[str] = []
    return ensure_rootfs(data(), arch, cache=host / "cache", host_arch=Arch.AMD64, say=said.append), said


def test_made_once_then_taken_from_the_cache(host: Path) -> None:
    fake_setpriv(host, GOOD)
    tar, said = make(host)
    assert tar == host / f"cache/rootfs/{rootfs_key(data(), Arch.AMD64)}.tar"
    assert len(said) == 2
    with tarfile.open(tar) as archive:
        names = archive.getnames()
    assert "etc/passwd" in names
    assert "etc/dpkg/dpkg.cfg.d/standin" in names
    assert not any("__pycache__" in name for name in names)
    calls = (host / "calls").read_text()
    assert "--include=a bookworm" in calls
    fake_setpriv(host, "exit 1")
    assert make(host) == (tar, [])
    assert sorted(path.suffix for path in tar.parent.iterdir() if path.is_file()) == [".lock", ".lock", ".tar"]
    assert list((tar.parent / "making").iterdir()) == []


def test_debootstrap_finds_a_wget_that_fetches_nothing(host: Path) -> None:
    fake_setpriv(host, f"command -v wget >> {host}/wget; wget http://mirror.example && exit 1\n" + GOOD)
    make(host)
    assert "/bin/wget" in (host / "wget").read_text()
    assert str(host / "cache") in (host / "wget").read_text()


def test_a_failed_run_leaves_nothing_and_shows_the_log(host: Path) -> None:
    fake_setpriv(
        host, 'mkdir -p "$before/debootstrap"; echo "no space left" > "$before/debootstrap/debootstrap.log"; exit 1'
    )
    with pytest.raises(UnableError, match="no space left"):
        make(host)
    assert {path.suffix for path in (host / "cache/rootfs").rglob("*") if path.is_file()} == {".lock"}
    fake_setpriv(host, GOOD)
    assert make(host)[0].is_file()


def test_what_killed_runs_left_is_removed(host: Path) -> None:
    left = host / "cache/rootfs/making/killed"
    left.mkdir(parents=True)
    (left / "rootfs.tar").write_text("half")
    fake_setpriv(host, GOOD)
    make(host)
    assert not left.exists()


def test_nothing_is_left_in_the_temporary_folder(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(host / "there is none"))
    fake_setpriv(host, GOOD)
    assert make(host)[0].is_file()


def test_not_root_is_unable(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnableError, match="root"):
        make(host)


def test_a_foreign_arch_without_qemu_says_what_to_install(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootfs, "is_registered", lambda _: False)
    with pytest.raises(UnableError, match=r"arm64[\s\S]*apt-get install qemu-user-static binfmt-support"):
        make(host, Arch.ARM64)


def test_a_foreign_arch_runs_the_second_stage_inside(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootfs, "is_registered", lambda _: True)
    fake_setpriv(host, 'case "$*" in *second-stage*) exit 0;; esac\n' + GOOD)
    make(host, Arch.ARM64)
    first, second, _ = (host / "calls").read_text().splitlines()
    assert "--arch=arm64" in first
    assert "--foreign" in first
    assert second.endswith("/debootstrap/debootstrap --second-stage")
