"""Parts of the own engine that can be told without starting one: paths, packages, rules, processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace

import pytest

from cannery.engine.io.probe import Server
from cannery.engine.own import engine as owned_engine
from cannery.engine.own import network as engine_network
from cannery.engine.own import packages as engine_packages
from cannery.engine.own import process as engine_process
from cannery.engine.own.layout import Layout, daemon_config
from cannery.engine.own.network import CANDIDATES, choose_subnet, routed_networks, rules
from cannery.engine.own.packages import Binaries, PackageSet, installed, missing_libraries, package_sets
from cannery.errors import UnableError
from cannery.standin.io.apt import HostRelease

SERVER = Server("26.1.5", "1.45", "amd64", podman=False, data_root="/", storage_driver="overlay2")


def test_names_fit_the_kernel_however_deep_the_cache_lies() -> None:
    layout = Layout.of(Path("/very") / "/".join(["deep"] * 60))
    assert len(str(layout.socket)) < 108
    assert len(layout.bridge) <= 15
    assert layout.tag != Layout.of(Path("/other")).tag


def test_two_spellings_of_a_cache_are_one_engine(tmp_path: Path) -> None:
    assert Layout.of(tmp_path / "x/../cache") == Layout.of(tmp_path / "cache")


def test_daemon_keeps_off_what_other_engines_own(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    taken = {"registry-mirrors": ["https://m.example"]}
    config = daemon_config(layout, Path("/p/docker-proxy"), 5_000_000_000, taken)
    assert config["registry-mirrors"] == ["https://m.example"]
    for key in ("iptables", "ip6tables", "ip-forward", "ip-masq"):
        assert config[key] is False
    assert config["features"] == {"containerd-snapshotter": False}
    for key in ("data-root", "exec-root", "pidfile"):
        assert config[key].startswith((str(layout.root), str(layout.run)))
    assert config["builder"]["gc"]["defaultKeepStorage"] == "5000000000B"


def test_the_build_cache_is_bounded_by_the_space_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.of(tmp_path)
    assert owned_engine.cache_limit(tmp_path) == 0
    for name in ("starting", "launch"):
        monkeypatch.setattr(owned_engine.engine_process, name, lambda *_a, **_k: False)
    monkeypatch.setattr(owned_engine.engine_network, "network_up", lambda *_a: None)
    monkeypatch.setattr(owned_engine, "_wait_ready", lambda _layout: SERVER)
    monkeypatch.setattr(owned_engine.shutil, "disk_usage", lambda _path: SimpleNamespace(total=300, free=60 * 10**9))
    layout.root.mkdir()
    owned_engine._launch(layout, Binaries(tmp_path / "versions"), {}, print)
    assert owned_engine.cache_limit(tmp_path) == 20 * 10**9
    assert owned_engine.status(tmp_path).cache_limit == 20 * 10**9
    layout.config.write_text('{"builder": []}')
    assert owned_engine.cache_limit(tmp_path) == 0


def test_host_settings_taken_over_are_only_those_of_registries(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    assert owned_engine._host_settings(path) == {}
    path.write_text(json.dumps({"data-root": "/big", "dns": ["10.0.0.1"], "insecure-registries": ["r:5000"]}))
    assert owned_engine._host_settings(path) == {"dns": ["10.0.0.1"], "insecure-registries": ["r:5000"]}
    path.write_text("{broken")
    assert owned_engine._host_settings(path) == {}


# ---- packages ---------------------------------------------------------------------------------------------------


def test_debian_12_takes_the_engine_from_13_and_what_meets_the_kernel_from_12() -> None:
    assert package_sets(HostRelease("debian", "bookworm", "12")) == (
        PackageSet("trixie", ("docker.io", "docker-cli", "docker-buildx", "containerd", "tini")),
        PackageSet("bookworm", ("runc", "iptables")),
    )
    (ubuntu,) = package_sets(HostRelease("ubuntu", "noble", "24.04"))
    assert ubuntu.suite == "noble"
    assert "docker-cli" not in ubuntu.names
    (trixie,) = package_sets(HostRelease("debian", "trixie", "13"))
    assert {"docker-cli", "runc", "iptables"} <= set(trixie.names)
    with pytest.raises(UnableError, match="bullseye is too old"):
        package_sets(HostRelease("debian", "bullseye", "11"))


def package(folder: Path, name: str, version: str, depends: str, *files: str) -> Path:
    tree = folder / f"{name}-tree"
    (tree / "DEBIAN").mkdir(parents=True)
    text = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: m <m@x>\nDescription: d\n"
    (tree / "DEBIAN/control").write_text(text + (f"Depends: {depends}\n" if depends else ""))
    for file in files:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_text(name)
    deb = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "-b", tree, deb], check=True, capture_output=True)
    return deb


def test_install_unpacks_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = package(tmp_path, "docker.io", "5:26.1.5+b1", "", "usr/sbin/dockerd", "usr/sbin/docker-proxy")
    tables = package(
        tmp_path, "iptables", "1.8", "libc6 (>= 2.34), libmnl0 (>= 1), netbase", "usr/sbin/xtables-nft-multi"
    )
    library = package(tmp_path, "libmnl0", "1.0", "", "usr/lib/x/libmnl.so.0")
    asked: list[tuple[str, ...]] = []

    def fetch(names: tuple[str, ...], *, suite: str, **rest: object) -> tuple[Path, ...]:
        asked.append(tuple(names))
        return {"trixie": (engine,), "bookworm": (library,) if "libmnl0" in names else (tables,)}[suite]

    monkeypatch.setattr(engine_packages, "host_release", lambda: HostRelease("debian", "bookworm", "12"))
    monkeypatch.setattr(engine_packages, "distribution_sources", lambda release: ())
    monkeypatch.setattr(engine_packages, "fetch_debs", fetch)
    layout = Layout.of(tmp_path / "cache")
    tables_bytes = tables.read_bytes()
    library.rename(tmp_path / "aside")
    library.write_bytes(b"half")
    with pytest.raises(UnableError, match="cannot be unpacked"):
        engine_packages.install(layout, tmp_path / "cache", lambda line: None)
    assert installed(layout) is None
    assert list(layout.packages.iterdir()) == []
    (tmp_path / "aside").rename(library)
    assert tables.read_bytes() == tables_bytes
    synced: list[tuple[int, Binaries | None]] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append((os.fstat(fd).st_ino, installed(layout))))
    binaries = engine_packages.install(layout, tmp_path / "cache", lambda line: None)
    assert installed(layout) == binaries
    for program in (binaries.dockerd, binaries.proxy):  # on the disk before the folder is taken for whole
        assert (program.stat().st_ino, None) in synced
    assert binaries.version == "26.1.5+b1"
    assert binaries.dockerd.read_text() == "docker.io"
    assert binaries.proxy == binaries.root / "usr/sbin/docker-proxy"
    assert (binaries.links / "iptables").resolve() == binaries.root / "usr/sbin/xtables-nft-multi"
    assert ("libmnl0",) in asked


def test_engine_of_a_release_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debs = (package(tmp_path, "docker.io", "20.10.24", ""), package(tmp_path, "iptables", "1", ""))
    monkeypatch.setattr(engine_packages, "host_release", lambda: HostRelease("ubuntu", "jammy", "22.04"))
    monkeypatch.setattr(engine_packages, "distribution_sources", lambda release: ())
    monkeypatch.setattr(engine_packages, "fetch_debs", lambda names, **rest: debs)
    with pytest.raises(UnableError, match=r"docker\.io 20\.10\.24 of jammy is too old"):
        engine_packages.install(Layout.of(tmp_path / "c"), tmp_path / "c", lambda line: None)


def test_newest_version_wins_and_unfinished_ones_do_not_count(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    for name in ("9.1", "26.1.5+b1", ".unpack-x"):
        (layout.packages / name).mkdir(parents=True)
    found = installed(layout)
    assert found is not None
    assert found.version == "26.1.5+b1"


def test_missing_libraries_are_those_the_package_names(tmp_path: Path) -> None:
    deb = package(tmp_path, "iptables", "1", "libip4tc2 (= 1), libxtables12 (= 1), netbase (>= 6), libc6 (>= 2)")
    assert missing_libraries(deb) == ("libip4tc2", "libxtables12")


# ---- network ----------------------------------------------------------------------------------------------------

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
vpn0\t0000D50A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""


def test_subnet_avoids_what_the_host_routes() -> None:
    assert routed_networks(ROUTES) == (("eth0", IPv4Network("192.168.1.0/24")), ("vpn0", IPv4Network("10.213.0.0/16")))
    assert choose_subnet("cannery0", ROUTES) == IPv4Network("10.187.77.0/24")
    assert choose_subnet("vpn0", ROUTES) == IPv4Network("10.213.0.0/16")  # a bridge that is there keeps its network
    everything = ROUTES + "vpn1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
    with pytest.raises(UnableError, match="no free private network"):
        choose_subnet("cannery0", everything)


def test_every_rule_is_ours_by_comment_and_bridge() -> None:
    for rule in rules("cannery0", CANDIDATES[0]):
        words = rule.command("-D")
        assert words[words.index("--comment") + 1] == "cannery0"
        assert "cannery0" in (words[words.index("-o") + 1] if "-o" in words else words[words.index("-i") + 1])
    assert sum("RELATED,ESTABLISHED" in rule.match for rule in rules("b", CANDIDATES[0])) == 1


FAKE_IPTABLES = """\
#!/bin/sh
echo "$@" >> "${0%/*}/calls"
case "$*" in *" -C "*) exit 1;; esac
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of files: interfaces, routes, forwarding off, an iptables that records."""
    for name, text in (("ip_forward", "0\n"), ("route", ROUTES)):
        (tmp_path / name).write_text(text)
    (tmp_path / "net").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/iptables").write_text(FAKE_IPTABLES)
    (tmp_path / "bin/iptables").chmod(0o755)
    monkeypatch.setattr(engine_network, "IP_FORWARD", tmp_path / "ip_forward")
    monkeypatch.setattr(engine_network, "ROUTES", tmp_path / "route")
    monkeypatch.setattr(engine_network, "NET_CLASS", tmp_path / "net")
    monkeypatch.setattr(engine_network, "_ioctl", lambda number, argument: None)
    return tmp_path


def test_network_is_made_once_and_taken_back(host: Path) -> None:
    layout = Layout.of(host, host / "run")
    binaries = Binaries(host / "none")
    env = {"PATH": f"{host}/bin:/usr/bin:/bin"}
    said: list[str] = []
    engine_network.network_up(layout, binaries, env, said.append)
    assert said == []
    assert (host / "ip_forward").read_text() == "1"
    added = [line for line in (host / "bin/calls").read_text().splitlines() if " -I " in line]
    assert len(added) == 3
    assert all("10.187.77.0/24" in line or layout.bridge in line for line in added)
    engine_network.network_up(layout, binaries, env, said.append)  # again, as after a firewall's reload
    (host / "bin/calls").unlink()
    engine_network.network_down(layout, binaries, env)
    removed = [line for line in (host / "bin/calls").read_text().splitlines() if " -D " in line]
    assert sorted(line.replace(" -D ", " -I ") for line in removed) == sorted(added)
    assert (host / "ip_forward").read_text() == "0"
    assert not layout.network_state.exists()


def test_a_bridge_that_is_there_gets_its_address_back_and_keeps_its_hardware_one(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, bytes]] = []
    monkeypatch.setattr(engine_network, "_ioctl", lambda number, argument: asked.append((number, argument)))
    layout, binaries = Layout.of(host, host / "run"), Binaries(host / "none")
    env = {"PATH": f"{host}/bin:/usr/bin:/bin"}
    engine_network.network_up(layout, binaries, env, print)
    # A new bridge, its hardware address (or it has its lowest port's, and changes with it), address, mask, up.
    assert [number for number, _ in asked] == [0x89A0, 0x8924, 0x8916, 0x891C, 0x8914]
    assert asked[1][1][16:24] == b"\x01\x00\x02\x42\x0a\xbb\x4d\x01"
    repairs = asked[2:]
    (host / "net" / layout.bridge).mkdir()
    asked.clear()
    engine_network.network_up(layout, binaries, env, print)  # as after a restart of the host's network manager
    assert asked == repairs


def test_a_variant_of_iptables_that_failed_once_is_asked_again(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_network, "search_path", lambda _env: str(host / "nothing"))
    programs = host / "engine/usr/sbin"
    programs.mkdir(parents=True)
    for kind, text in (("nft", "#!/bin/sh\nexit 4\n"), ("legacy", "#!/bin/sh\nexit 3\n")):
        (programs / f"xtables-{kind}-multi").write_text(text)
        (programs / f"xtables-{kind}-multi").chmod(0o755)
    layout, binaries, said = Layout.of(host, host / "run"), Binaries(host / "engine"), list[str]()
    engine_network.network_up(layout, binaries, {}, said.append)
    assert "no network" in "".join(said)
    (programs / "xtables-nft-multi").write_text(FAKE_IPTABLES)  # the kernel's table is free again
    said.clear()
    engine_network.network_up(layout, binaries, {}, said.append)
    assert said == []
    assert (binaries.links / "iptables").resolve().name == "xtables-nft-multi"
    assert sum(" -I " in line for line in (binaries.links / "calls").read_text().splitlines()) == 3


def test_rules_are_taken_back_from_each_variant(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_network, "search_path", lambda _env: str(host / "nothing"))
    programs = host / "engine/usr/sbin"
    programs.mkdir(parents=True)
    for kind in ("nft", "legacy"):
        text = FAKE_IPTABLES.replace('"$@"', f'{kind} "$@"')
        (programs / f"xtables-{kind}-multi").write_text("#!/bin/sh\nexit 4\n" if kind == "nft" else text)
        (programs / f"xtables-{kind}-multi").chmod(0o755)
    layout, binaries = Layout.of(host, host / "run"), Binaries(host / "engine")
    engine_network.network_up(layout, binaries, {}, print)
    (programs / "xtables-nft-multi").write_text(FAKE_IPTABLES.replace('"$@"', 'nft "$@"'))  # it failed for a time
    engine_network.network_down(layout, binaries, {})
    lines = (binaries.links / "calls").read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines if " -I " in line] == ["legacy"] * 3
    assert [line.partition(" ")[0] for line in lines if " -D " in line] == ["nft"] * 3 + ["legacy"] * 3


@pytest.mark.parametrize(("before", "others"), [("1\n", False), ("0\n", True)])
def test_forwarding_stays_where_somebody_else_may_need_it(host: Path, before: str, others: bool) -> None:
    (host / "ip_forward").write_text(before)
    layout = Layout.of(host, host / "run")
    env = {"PATH": f"{host}/bin:/usr/bin:/bin"}
    engine_network.network_up(layout, Binaries(host / "none"), env, print)
    if others:
        (host / "net/docker0/bridge").mkdir(parents=True)
    engine_network.network_down(layout, Binaries(host / "none"), env)
    assert (host / "ip_forward").read_text().strip() == "1"


def test_host_without_iptables_is_told_that_containers_have_no_network(host: Path) -> None:
    said: list[str] = []
    (host / "bin/iptables").write_text("#!/bin/sh\nexit 3\n")
    env = {"PATH": f"{host}/bin:/usr/bin:/bin"}
    engine_network.network_up(Layout.of(host, host / "run"), Binaries(host / "none"), env, said.append)
    assert len(said) == 1
    assert "no network" in said[0]


# ---- processes --------------------------------------------------------------------------------------------------


def process(proc: Path, pid: int, program: str, *args: str, cgroup: str = "/", state: str = "S") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "exe").symlink_to(program)
    (folder / "cmdline").write_bytes("\0".join((*args, "")).encode())
    (folder / "cgroup").write_text(f"12:memory:{cgroup}\n0::/\n")
    (folder / "stat").write_text(f"{pid} (a) b) {state} 1 1 0\n")


def test_only_our_processes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = tmp_path / "proc"
    monkeypatch.setattr(engine_process, "PROC", proc)
    layout = Layout.of(tmp_path / "cache")
    own = f"{layout.root}/versions/26/usr"
    config = str(layout.config)
    process(proc, 11, f"{own}/sbin/dockerd", "dockerd", "--config-file", config)
    process(proc, 12, f"{own}/bin/containerd (deleted)", "containerd")
    process(proc, 13, f"{own}/bin/docker", "docker", "run")
    process(proc, 14, "/usr/sbin/dockerd", "dockerd", "-H", "fd://")
    process(proc, 15, "/usr/bin/less", "less", config)
    process(proc, 16, "/usr/bin/python3", "python3", cgroup=f"{layout.cgroup}/abc")
    process(proc, 17, "/usr/bin/python3", "python3", cgroup=f"{layout.cgroup}x/abc")
    process(proc, 18, "/gone", cgroup=f"{layout.cgroup}/abc", state="Z")
    assert engine_process.daemons(layout) == (11,)
    assert sorted(engine_process.remnants(layout)) == [11, 12, 16]


def test_end_asks_first_and_kills_then() -> None:
    stubborn = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done"], stdout=subprocess.PIPE
    )
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    engine_process.end([stubborn.pid], patience=0.2)
    assert stubborn.wait(timeout=5) == -9
    stubborn.stdout.close()
    engine_process.end([stubborn.pid], patience=0.2)  # nobody there any more


def test_end_in_time_needs_no_word() -> None:
    told: list[str] = []
    quick = subprocess.Popen(["sleep", "60"])
    engine_process.end([quick.pid], patience=5, slow=lambda: told.append("slow"))
    assert quick.wait(timeout=5) == -15
    assert told == []


def test_stop_says_that_it_waits_for_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = tmp_path / "proc"
    layout = Layout.of(tmp_path / "cache", tmp_path / "run")
    layout.root.mkdir(parents=True)
    own = f"{layout.root}/versions/26/usr/sbin/dockerd"
    process(proc, 4194311, own, "dockerd", "--config-file", str(layout.config))
    for pid, name in ((4194312, "a"), (4194313, "a/nested"), (4194314, "b")):
        process(proc, pid, "/bin/sleep", cgroup=f"{layout.cgroup}/{name}")
    said: list[str] = []

    def kill(pid: int, number: int) -> None:
        if pid != 4194311 or number == 9:  # the daemon ends when asked for the second time
            shutil.rmtree(proc / str(pid), ignore_errors=True)

    monkeypatch.setattr(engine_process, "PROC", proc)
    monkeypatch.setattr("cannery.engine.own.process.os.kill", kill)
    monkeypatch.setattr(engine_process, "NOTICE", 0.1)
    monkeypatch.setattr(owned_engine, "STOP_PATIENCE", 0.4)
    monkeypatch.setattr(engine_process, "unmount_below", lambda *folders: None)
    monkeypatch.setattr(engine_process, "CGROUPS", tmp_path / "cgroup")
    assert owned_engine.stop(tmp_path / "cache", {}, said.append) is True
    assert said == ["waiting for the engine and its containers to end"]
    assert list(proc.iterdir()) == []


def test_daemon_that_dies_at_once_is_reported_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.of(tmp_path, tmp_path / "run")
    layout.root.mkdir(parents=True)
    layout.log.write_text("level=info msg=hello\nfailed to start daemon: no space\n")
    monkeypatch.setattr(owned_engine, "EXEC_PATIENCE", 0.1)
    with pytest.raises(UnableError, match="failed to start daemon: no space") as caught:
        owned_engine._wait_ready(layout)
    assert "hello" not in str(caught.value)
    monkeypatch.setattr(engine_process, "starting", lambda layout, patience: True)
    monkeypatch.setattr(owned_engine, "READY_TIMEOUT", 0.2)
    with pytest.raises(UnableError, match=r"does not answer within 0\.2 s"):
        owned_engine._wait_ready(layout)


def test_launcher_that_is_becoming_the_daemon_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, proc = Layout.of(tmp_path, tmp_path / "run"), tmp_path / "proc"
    proc.mkdir()
    process(proc, 4194311, "/usr/bin/unshare", "unshare", "dockerd", "--config-file", str(layout.config))
    named = (proc / "4194311/cmdline").read_bytes()
    (proc / "4194311/cmdline").write_bytes(b"")  # as the kernel shows it between two programs
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            (proc / "4194311/cmdline").write_bytes(named)

    monkeypatch.setattr(engine_process, "PROC", proc)
    monkeypatch.setattr("cannery.engine.own.process.time.sleep", sleep)
    assert engine_process.starting(layout) is False
    assert engine_process.starting(layout, patience=60.0) is True
    assert len(looks) == 3


def test_stop_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    assert owned_engine.stop(tmp_path / "cache", {}, print) is False
    assert not (tmp_path / "cache").exists()
    owned_engine.remove_data(tmp_path / "cache", {}, print)
    assert owned_engine.status(tmp_path / "cache").running is False
    assert not (tmp_path / "cache").exists()
