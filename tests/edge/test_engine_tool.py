"""Parts of tools/engine.py that can be tested without starting an engine: paths, packages, rules, processes, shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from docker_engine import daemon, engine, network, packages
from docker_engine.daemon import Layout, daemon_config
from docker_engine.network import CANDIDATES, choose_subnet, network_down, network_up, rules
from docker_engine.packages import install, installed, package_sets, write_wrapper

from cannery.errors import UnableError
from cannery.standin.io.apt import HostRelease

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = "26.1.5"


def test_the_tool_is_small() -> None:
    files = (ROOT / "tools/engine.py", *(ROOT / "tools/docker_engine").glob("*.py"))
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= 600


def test_names_fit_the_kernel_however_deep_the_cache_is() -> None:
    layout = Layout.of(Path("/very") / "/".join(["deep"] * 60))
    assert len(layout.host.removeprefix("unix://")) < 108
    assert len(layout.bridge) <= 15
    assert layout.bridge != Layout.of(Path("/other")).bridge


def test_two_spellings_of_a_cache_are_one_engine(tmp_path: Path) -> None:
    assert Layout.of(tmp_path / "x/../cache") == Layout.of(tmp_path / "cache")


def test_daemon_keeps_off_what_other_engines_own(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    config = daemon_config(layout, "/p/docker-proxy", 5_000_000_000)
    for key in ("iptables", "ip6tables", "ip-forward", "ip-masq"):
        assert config[key] is False
    assert config["features"] == {"containerd-snapshotter": False}
    for key in ("data-root", "exec-root", "pidfile"):
        assert config[key].startswith((str(layout.root), str(layout.run)))
    assert config["builder"]["gc"]["defaultKeepStorage"] == "5000000000B"


def test_the_build_cache_is_bounded_by_the_space_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Mapping[str, str]] = []
    monkeypatch.setattr(engine, "launch", lambda _layout, _dockerd, env: launched.append(env))
    monkeypatch.setattr(engine, "network_up", lambda *_a: None)
    monkeypatch.setattr(engine.shutil, "disk_usage", lambda _path: SimpleNamespace(total=300, free=60 * 10**9))
    layout = Layout.of(tmp_path, tmp_path / "run")
    layout.root.mkdir()
    env = {"PATH": "/bin", "https_proxy": "http://p", "DOCKER_HOST": "unix:///x", "PYTHONPATH": "/y"}
    engine._launch(layout, tmp_path / "versions", env)
    config = json.loads(layout.config.read_text())
    assert config["builder"]["gc"]["defaultKeepStorage"] == f"{20 * 10**9}B"
    assert launched[0]["https_proxy"] == "http://p"
    assert not {"DOCKER_HOST", "PYTHONPATH"} & launched[0].keys()


# ---- packages ---------------------------------------------------------------------------------------------------


def test_debian_12_takes_the_engine_from_13_and_what_meets_the_kernel_from_12() -> None:
    found = package_sets(HostRelease("debian", "bookworm"))
    assert found["trixie"] == ("docker.io", "docker-cli", "docker-buildx", "containerd", "tini")
    assert found["bookworm"][:2] == ("runc", "iptables")
    (noble,) = package_sets(HostRelease("ubuntu", "noble")).values()
    assert "docker-cli" not in noble
    (trixie,) = package_sets(HostRelease("debian", "trixie")).values()
    assert {"docker-cli", "runc", "iptables"} <= set(trixie)


def package(folder: Path, name: str, version: str, *files: str) -> Path:
    tree = folder / f"{name}-tree"
    (tree / "DEBIAN").mkdir(parents=True)
    text = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: m <m@x>\nDescription: d\n"
    (tree / "DEBIAN/control").write_text(text)
    for file in files:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_text(name)
    deb = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "-b", tree, deb], check=True, capture_output=True)
    return deb


def test_install_unpacks_whole_or_not_at_all_and_replaces_what_is_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = package(tmp_path, "docker.io", "5:26.1.5+b1", "usr/sbin/dockerd")
    tables = package(tmp_path, "iptables", "1.8", "usr/sbin/xtables-nft-multi")
    of_suite = {"trixie": (docker,), "bookworm": (tables,)}
    monkeypatch.setattr(packages, "host_release", lambda: HostRelease("debian", "bookworm"))
    monkeypatch.setattr(packages, "fetch_debs", lambda _names, *, suite, **_more: of_suite[suite])
    layout = Layout.of(tmp_path / "cache")
    whole = tables.read_bytes()
    tables.write_bytes(b"half")
    with pytest.raises(UnableError, match="cannot be unpacked"):
        install(layout)
    assert installed(layout) is None
    assert list((layout.root / "versions").iterdir()) == []
    tables.write_bytes(whole)
    for stale in ("9.1", ".unpack-killed"):
        (layout.root / "versions" / stale).mkdir()
    programs = install(layout)
    assert installed(layout) == programs
    assert list(programs.parent.iterdir()) == [programs]
    assert programs.name == "26.1.5+b1"
    assert (programs / packages.DOCKERD).read_text() == "docker.io"
    assert (programs / "usr/sbin/xtables-nft-multi").is_file()


def test_upgrade_fetches_again_with_the_engine_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, did = Layout.of(tmp_path), list[str]()
    (layout.root / "versions/26.1").mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "stop", lambda *_a: did.append("stop"))
    monkeypatch.setattr(engine, "install", lambda _layout: did.append("install") or layout.root / "versions/27.0")
    monkeypatch.setattr(engine, "_launch", lambda _layout, programs, _env: did.append(programs.name))
    monkeypatch.setattr(engine, "answer", lambda _layout: None)
    monkeypatch.setattr(engine, "_wait_ready", lambda _layout: SERVER)
    assert engine.start(layout, {}) == SERVER
    assert did == ["26.1"]
    assert engine.start(layout, {}, upgrade=True) == SERVER
    assert did == ["26.1", "stop", "install", "27.0"]


def test_root_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnableError, match="needs root"):
        engine.start(Layout.of(tmp_path / "cache"), {})
    assert not (tmp_path / "cache").exists()


# ---- network ----------------------------------------------------------------------------------------------------

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
vpn0\t0000D50A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""


def test_subnet_avoids_what_the_host_routes() -> None:
    assert choose_subnet(ROUTES) == IPv4Network("10.187.77.0/24")
    assert choose_subnet("\n".join(ROUTES.splitlines()[:3])) == CANDIDATES[0]
    with pytest.raises(UnableError, match="no free private network"):
        choose_subnet(ROUTES + "vpn1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n")


def test_every_rule_is_ours_by_comment_and_bridge() -> None:
    for words in rules("cannery0", CANDIDATES[0]):
        assert words[words.index("--comment") + 1] == "cannery0"
        assert "cannery0" in (words[words.index("-o") + 1] if "-o" in words else words[words.index("-i") + 1])
    assert sum("RELATED,ESTABLISHED" in words for words in rules("b", CANDIDATES[0])) == 1


# Records its calls; keeps the policy of FORWARD in a file.
IPTABLES = """\
#!/bin/sh
at="${0%/*}"
echo "$@" >> "$at/calls"
case "$*" in
*" -C "*) exit 1 ;;
*"-S FORWARD") echo "-P FORWARD $(cat "$at/policy")" ;;
*"-P FORWARD "*) echo "$5" > "$at/policy" ;;
esac
"""


class Host:
    """A host of files: interfaces, routes, forwarding off, an iptables that records."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.layout = Layout.of(folder, folder / "run")
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin"}
        for name, text in (("ip_forward", "0\n"), ("route", ROUTES)):
            (folder / name).write_text(text)
        (folder / "net").mkdir()
        self.program(self.bin / "iptables")
        self.policy = "ACCEPT"

    def program(self, path: Path, text: str = IPTABLES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    @property
    def forwards(self) -> bool:
        return (self.folder / "ip_forward").read_text().strip() == "1"

    @property
    def policy(self) -> str:
        return (self.bin / "policy").read_text().strip()

    @policy.setter
    def policy(self, word: str) -> None:
        (self.bin / "policy").write_text(word)

    def calls(self, action: str, folder: Path | None = None) -> list[str]:
        lines = ((folder or self.bin) / "calls").read_text().splitlines()
        return [line for line in lines if f" {action} " in line]

    def up(self, programs: str = "none") -> None:
        network_up(self.layout, self.folder / programs, self.env)

    def down(self, programs: str = "none", others: tuple[str, ...] = ()) -> None:
        network_down(self.layout, self.folder / programs, self.env, others)


@pytest.fixture
def ioctls() -> list[tuple[int, str, bytes]]:
    return []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ioctls: list[tuple[int, str, bytes]]) -> Host:
    monkeypatch.setattr(network, "IP_FORWARD", tmp_path / "ip_forward")
    monkeypatch.setattr(network, "ROUTES", tmp_path / "route")
    monkeypatch.setattr(network, "NET_CLASS", tmp_path / "net")

    def ioctl(number: int, name: str, payload: bytes = b"") -> None:
        ioctls.append((number, name, payload))
        if number == network.SIOCBRDELBR:
            shutil.rmtree(tmp_path / "net" / name)

    monkeypatch.setattr(network, "_ioctl", ioctl)
    return Host(tmp_path)


def test_network_is_made_once_and_taken_back(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.up()
    assert capsys.readouterr().err == ""
    assert host.forwards
    added = host.calls("-I")
    assert len(added) == 3
    assert all("10.187.77.0/24" in line or host.layout.bridge in line for line in added)
    host.up()  # again, as after a firewall's reload
    (host.bin / "calls").unlink()
    host.down()
    assert sorted(line.replace(" -D ", " -I ") for line in host.calls("-D")) == sorted(added)
    assert not host.forwards
    assert not host.layout.state.exists()


def test_forwarding_that_is_switched_on_routes_for_nobody_else(host: Host) -> None:
    """The policy of FORWARD is DROP before forwarding is on, and what it was after stop."""
    host.up()
    assert (host.policy, host.forwards) == ("DROP", True)
    host.policy = "ACCEPT"  # a firewall's reload
    host.up()
    assert host.policy == "DROP"
    host.down()
    assert (host.policy, host.forwards) == ("ACCEPT", False)
    host.policy = "DROP"  # the host's own
    host.up()
    host.down()
    assert (host.policy, host.forwards) == ("DROP", False)


def test_a_host_that_forwards_keeps_its_policy(host: Host) -> None:
    (host.folder / "ip_forward").write_text("1\n")
    host.up()
    assert (host.policy, host.forwards) == ("ACCEPT", True)
    host.down()
    assert (host.policy, host.forwards) == ("ACCEPT", True)
    assert host.calls("-P") == []


def test_forwarding_and_its_policy_stay_where_somebody_else_may_need_them(host: Host) -> None:
    host.up()
    (host.folder / "net/docker0/bridge").mkdir(parents=True)
    host.down()
    assert (host.policy, host.forwards) == ("DROP", True)


def test_bridges_of_the_engine_s_further_networks_go_too(host: Host) -> None:
    host.up()
    for name in (host.layout.bridge, "br-0123456789ab"):
        (host.folder / "net" / name / "bridge").mkdir(parents=True)
    host.down(others=("br-0123456789ab", "br-ffffffffffff"))
    assert list((host.folder / "net").iterdir()) == []
    assert (host.policy, host.forwards) == ("ACCEPT", False)


def test_a_bridge_that_is_there_gets_its_address_back_and_keeps_its_hardware_one(
    host: Host, ioctls: list[tuple[int, str, bytes]]
) -> None:
    host.up()
    # A new bridge, its hardware address (or it has its lowest port's, and changes with it), address, mask, up.
    assert [number for number, *_ in ioctls] == [0x89A0, 0x8924, 0x8916, 0x891C, 0x8914]
    assert ioctls[1][2] == b"\x01\x00\x02\x42\x0a\xbb\x4d\x01"
    repairs = ioctls[2:]
    (host.folder / "net" / host.layout.bridge).mkdir()
    ioctls.clear()
    host.up()  # as after a restart of the host's network manager
    assert ioctls == repairs


def variants(host: Host, monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """A host without iptables, with the unpacked one in its variants."""
    monkeypatch.setattr(network, "SYSTEM_PATH", str(host.folder / "nothing"))
    host.env = {"PATH": str(host.folder / "nothing")}
    for kind, text in texts.items():
        host.program(host.folder / f"engine/usr/sbin/xtables-{kind}-multi", text)


FAILS = "#!/bin/sh\nexit 4\n"


def of_kind(kind: str) -> str:
    return IPTABLES.replace("#!/bin/sh", "#!/bin/sh\nPATH=/usr/bin:/bin").replace('"$@" >>', f'{kind} "$@" >>')


def test_a_variant_of_iptables_that_failed_once_is_asked_again(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variants(host, monkeypatch, nft=FAILS, legacy=FAILS)
    host.up("engine")
    assert "no network" in capsys.readouterr().err
    assert not host.forwards  # for nothing
    host.program(host.folder / "engine/usr/sbin/xtables-nft-multi", of_kind("nft"))  # the kernel's table is free again
    host.up("engine")
    assert capsys.readouterr().err == ""
    links = host.folder / "engine/links"
    assert (links / "iptables").resolve().name == "xtables-nft-multi"
    assert len(host.calls("-I", links)) == 3


def test_rules_are_taken_back_from_each_variant(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    variants(host, monkeypatch, nft=FAILS, legacy=of_kind("legacy"))
    host.up("engine")
    host.program(host.folder / "engine/usr/sbin/xtables-nft-multi", of_kind("nft"))  # it failed for a time
    host.down("engine")
    links = host.folder / "engine/links"
    assert [line.partition(" ")[0] for line in host.calls("-I", links)] == ["legacy"] * 3
    assert [line.partition(" ")[0] for line in host.calls("-D", links)] == ["nft"] * 3 + ["legacy"] * 3


def test_host_without_iptables_gets_a_warning(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.program(host.bin / "iptables", FAILS)
    host.up()
    assert "no network" in capsys.readouterr().err
    assert not host.forwards


# ---- processes and mounts ---------------------------------------------------------------------------------------


def process(proc: Path, pid: int, program: str, *args: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "exe").symlink_to(program)
    (folder / "cmdline").write_bytes("\0".join((*args, "")).encode())


def test_only_our_processes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = tmp_path / "proc"
    monkeypatch.setattr(daemon, "PROC", proc)
    layout = Layout.of(tmp_path / "cache")
    own, config = f"{layout.root}/versions/26/usr", str(layout.config)
    process(proc, 11, f"{own}/sbin/dockerd (deleted)", "dockerd", "--config-file", config)
    process(proc, 12, "/usr/bin/unshare", "unshare", "--", "sh", "dockerd", "--config-file", config)
    process(proc, 13, f"{own}/bin/docker", "docker", "run")
    process(proc, 14, "/usr/sbin/dockerd", "dockerd", "-H", "fd://")
    process(proc, 15, "/usr/bin/less", "less", config)
    process(proc, 16, "/usr/sbin/dockerd", "dockerd", "--config-file", f"{config}x")
    process(proc, 17, "/usr/bin/dash")  # a zombie, or one that is becoming another program
    assert daemon.processes(layout) == {11: "dockerd", 12: "unshare"}
    assert daemon.daemons(layout) == (11,)


def test_end_asks_first_and_kills_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, layout = tmp_path / "proc", Layout.of(tmp_path / "cache")
    for pid, name in ((21, "dockerd"), (22, "dash"), (23, "unshare")):
        process(proc, pid, f"/x/{name}", name, "--config-file", str(layout.config))
    killed: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        if number == 9:
            shutil.rmtree(proc / str(pid))
        if (22, 9) in killed:  # process 1 of the namespace
            shutil.rmtree(proc, ignore_errors=True)
            proc.mkdir()

    monkeypatch.setattr(daemon, "PROC", proc)
    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(daemon, "STOP_PATIENCE", 0.2)
    assert daemon.end(layout) is True
    assert killed[0] == (21, 15)
    assert sorted(killed[1:]) == [(21, 9), (22, 9)]
    assert daemon.end(layout) is False


def test_a_process_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.of(tmp_path / "cache")
    process(tmp_path / "proc", 21, "/x/dash", "sh", "--config-file", str(layout.config))
    monkeypatch.setattr(daemon, "PROC", tmp_path / "proc")
    monkeypatch.setattr(daemon, "KILL_PATIENCE", 0.1)
    monkeypatch.setattr(os, "kill", lambda _pid, _number: None)
    with pytest.raises(UnableError, match="do not end: 21"):
        daemon.end(layout)


def test_daemon_that_dies_at_once_is_reported_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.of(tmp_path, tmp_path / "run")
    layout.root.mkdir(parents=True)
    layout.log.write_text("level=info msg=hello\nfailed to start daemon: no space\n")
    monkeypatch.setattr(engine, "EXEC_PATIENCE", 0.2)
    with pytest.raises(UnableError, match=r"ended while starting\nfailed to start daemon: no space") as caught:
        engine._wait_ready(layout)
    assert "hello" not in str(caught.value)
    monkeypatch.setattr(engine, "processes", lambda _layout: {1: "dockerd"})
    monkeypatch.setattr(engine, "READY_TIMEOUT", 0.3)
    with pytest.raises(UnableError, match="does not answer"):
        engine._wait_ready(layout)


def test_launcher_that_is_becoming_the_daemon_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel shows no command line between two programs, and a daemon that starts may answer slowly.

    So may the machine be slow: what is there at each look has not ended, whatever the time between two looks.
    """
    layout, looks = Layout.of(tmp_path, tmp_path / "run"), list[int]()

    def answer(_layout: Layout) -> str | None:
        looks.append(1)
        time.sleep(0.3)
        return SERVER if len(looks) > 3 else None

    monkeypatch.setattr(engine, "EXEC_PATIENCE", 0.05)
    monkeypatch.setattr(engine, "answer", answer)
    monkeypatch.setattr(engine, "processes", lambda _layout: {1: "sh"})
    assert engine._wait_ready(layout) == SERVER


def test_stop_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "cache")
    assert engine.stop(layout, {}) is False
    assert not (tmp_path / "cache").exists()
    engine.remove(layout, {})
    assert engine.answer(layout) is None
    assert not (tmp_path / "cache").exists()


def test_settings_for_another_engine_do_not_reach_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.of(tmp_path / "cache", tmp_path / "run")
    programs = layout.root / "versions/27.0"
    for name in engine.REDIRECTING:
        monkeypatch.setenv(name, "1")
    fails = " ".join(f'[ -z "${name}" ] || exit 1;' for name in engine.REDIRECTING)
    for path in (layout.bin / "docker", programs / engine.DOCKER):
        path.parent.mkdir(parents=True)
        path.write_text(f'#!/bin/sh\n{fails} case "$*" in *network*) echo 1a2b ;; *) echo {SERVER} ;; esac\n')
        path.chmod(0o755)
    assert engine.answer(layout) == SERVER
    bridges: list[str] = []
    monkeypatch.setattr(engine, "installed", lambda _layout: programs)
    monkeypatch.setattr(engine, "network_down", lambda *words: bridges.extend(words[-1]))
    engine.stop(layout, {})
    assert bridges == ["br-1a2b"]


# What a user's disk is here: a file system that is mounted below the engine's data, in a namespace of this test's own.
DISK = """\
set -eu
mount -t tmpfs disk "$1/engine/data/disk" && touch "$1/engine/data/disk/mine"
export CANNERY_CACHE="$1"
"$2" tools/engine.py stop
mountpoint -q "$1/engine/data/disk" || exit 11
code=0 && "$2" tools/engine.py remove || code=$?
mountpoint -q "$1/engine/data/disk" || exit 12
test -f "$1/engine/data/disk/mine" || exit 13
test ! -e "$1/engine/data/image" || exit 14
exit $code
"""


def test_a_disk_that_a_user_mounted_below_the_data_stays(tmp_path: Path) -> None:
    data = tmp_path / "engine/data"
    (data / "disk").mkdir(parents=True)
    (data / "image").write_text("layer")
    command = ("unshare", "--map-root-user", "--mount", "sh", "-c", DISK, "sh", str(tmp_path), sys.executable)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "not everything can be removed" in done.stderr


# ---- the user's shell -------------------------------------------------------------------------------------------

ECHO = """\
#!/bin/sh
echo "$(basename "$0") $DOCKER_HOST ${BUILDX_BUILDER-none} ${DOCKER_CONTEXT-none}"
for word in "$@"; do echo "<$word>"; done
"""
# what a path of a user's may hold, and a shell must not read
CACHES = ("cache", "my cache", 'it\'s "mine"', "a$(touch ran)b`touch ran`;c", "*", "new\nline")


def unpacked(layout: Layout, version: str = "26.1") -> Path:
    programs = layout.root / "versions" / version
    for name in (packages.DOCKER, packages.BUILDX):
        (programs / name).parent.mkdir(parents=True)
        (programs / name).write_text(ECHO)
        (programs / name).chmod(0o755)
    return programs


def shell(text: str, folder: Path, *words: str) -> list[str]:
    """Lines that `docker WORD...` prints in a shell that has evaluated `text`."""
    env = {"PATH": "/usr/bin:/bin", "TEXT": text, "BUILDX_BUILDER": "far", "DOCKER_CONTEXT": "far"}
    command = ["sh", "-euc", 'eval "$TEXT" && docker "$@"', "sh", *words]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", CACHES)
def test_docker_of_the_shell_is_ours_whatever_the_cache_is_called(tmp_path: Path, name: str) -> None:
    layout = Layout.of(tmp_path / name)
    write_wrapper(layout, unpacked(layout))
    text = engine.shell_text(layout)
    assert shell(text, tmp_path, "ps", "-a b") == [f"docker {layout.host} none none", "<ps>", "<-a b>"]
    assert shell(text, tmp_path, "buildx", "bake", "", "x y")[1:] == ["<bake>", "<>", "<x y>"]
    assert shell(text, tmp_path, "buildx") == [f"docker-buildx {layout.host} none none"]
    assert shell(text, tmp_path, "build", ".") == [f"docker-buildx {layout.host} none none", "<build>", "<.>"]
    assert shell(text, tmp_path) == [f"docker {layout.host} none none"]
    assert not (tmp_path / "ran").exists()


def test_wrapper_follows_the_version(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    path = layout.bin / "docker"
    programs = unpacked(layout, "26.1")
    write_wrapper(layout, programs)
    before = path.stat().st_ino
    write_wrapper(layout, programs)
    assert path.stat().st_ino == before  # nothing to write
    write_wrapper(layout, unpacked(layout, "27.0"))
    assert "/27.0/" in path.read_text()
    assert "/26.1/" not in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == ["docker"]


def tool(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "tools/engine.py", *words)
    env = {**os.environ, "CANNERY_CACHE": str(cache)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_an_engine_that_does_not_run_gives_no_settings(tmp_path: Path) -> None:
    done = tool(tmp_path, "env")
    assert (done.returncode, done.stdout) == (4, "")
    assert "make engine-start" in done.stderr
    done = tool(tmp_path, "status")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == ["it does not run", f"  {Layout.of(tmp_path).host}"]
    assert tool(tmp_path, "stop").returncode == 0
    assert tool(tmp_path, "begin").returncode == 2
    assert list(tmp_path.iterdir()) == []
