"""The engine of tools/engine.py: fetched, started twice at once, killed, started again, stopped without a trace.

Needs root, Debian or Ubuntu, and the package mirror of the host's apt. CANNERY_ENGINE_CACHE may name a cache that has
the packages already; the engine's data is removed at the end either way.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docker_engine import engine, network
from docker_engine.daemon import CGROUPS, Layout, daemons

from cannery.standin.io.apt import distribution_sources, fetch_debs, host_release, unpack
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parent.parent.parent
START = (sys.executable, "tools/engine.py", "start")


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    named = os.environ.get("CANNERY_ENGINE_CACHE")
    found = Layout.of(Path(named) if named else tmp_path_factory.mktemp("cache"))
    yield found
    engine.stop(found, os.environ)
    shutil.rmtree(found.data)


@pytest.fixture
def docker(layout: Layout) -> Callable[..., str]:
    """The client of the engine, which is started: also where the machine has another that answers."""
    engine.start(layout, os.environ)
    env = {**os.environ, "DOCKER_HOST": layout.host}
    return lambda *words, **more: run((layout.bin / "docker", *words), env=env, timeout=120, **more).stdout


@pytest.fixture(scope="module")
def image(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> str:
    tree = tmp_path_factory.mktemp("tree")
    arch = run(("dpkg", "--print-architecture")).stdout.strip()
    (deb,) = fetch_debs(["busybox-static"], suite=host_release().codename, arch=arch, cache=layout.root.parent)
    unpack(deb, tree)
    program = next(path for path in (tree / "bin/busybox", tree / "usr/bin/busybox") if path.is_file())
    for name in ("sh", "sleep", "nc"):
        (program.parent / name).symlink_to("busybox")
    engine.start(layout, os.environ)
    tar = subprocess.run(["tar", "-C", tree, "-c", "."], capture_output=True, check=True).stdout
    command = (layout.bin / "docker", "-H", layout.host, "import", "--change", "ENV PATH=/bin:/usr/bin", "-", "tiny:1")
    subprocess.run(command, input=tar, check=True, capture_output=True)
    return "tiny:1"


def mirror_probe() -> str:
    """Shell command that succeeds where the distribution's mirror can be reached by TCP."""
    uri = distribution_sources(host_release())[0].uris[0]
    host, _, port = uri.split("//")[1].split("/")[0].rpartition("@")[2].partition(":")
    return f"nc -w 8 {host} {port or (443 if uri.startswith('https') else 80)} </dev/null"


def of_engine(layout: Layout) -> list[str]:
    """What runs below the engine's folder or in its containers, by command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            groups, program = (folder / "cgroup").read_text(), str((folder / "exe").readlink())
            if layout.cgroup in groups or program.startswith(str(layout.root)):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_two_starts_at_once_share_one_daemon_and_hold_no_pipe(layout: Layout) -> None:
    engine.stop(layout, os.environ)
    env = {**os.environ, "CANNERY_CACHE": str(layout.root.parent)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    both = [subprocess.Popen(START, cwd=ROOT, env=env, text=True, **streams) for _ in range(2)]
    outputs = [one.communicate(timeout=300)[0] for one in both]  # returns only when nobody holds the pipe
    assert [one.returncode for one in both] == [0, 0], outputs
    assert len(daemons(layout)) == 1


def test_containers_and_builds_reach_the_mirror(docker: Callable[..., str], image: str, tmp_path: Path) -> None:
    docker("run", "--rm", image, "sh", "-c", mirror_probe())
    (tmp_path / "Dockerfile").write_text(
        f"FROM {image} AS a\nRUN {mirror_probe()} && mkdir /opt\nFROM {image}\nCOPY --link --from=a /opt /opt\n"
    )
    docker("buildx", "build", "--no-cache", "-t", "tiny:2", str(tmp_path))
    assert "tiny" in docker("image", "ls", "tiny:2")


def test_a_killed_daemon_takes_all_with_it_and_is_started_again(
    layout: Layout, docker: Callable[..., str], image: str
) -> None:
    docker("run", "-d", "--name", "sleeper", "-p", "127.0.0.1::80", image, "sleep", "600")
    assert any("sleep 600" in line for line in of_engine(layout))
    (pid,) = daemons(layout)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while of_engine(layout) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert of_engine(layout) == []
    engine.start(layout, os.environ)
    assert docker("ps", "-a", "--format", "{{.Names}} {{.State}}").split() == ["sleeper", "exited"]
    assert len(daemons(layout)) == 1
    docker("run", "--rm", image, "sh", "-c", mirror_probe())


def test_the_settings_of_the_tool_lead_a_shell_to_it(layout: Layout, docker: Callable[..., str], image: str) -> None:
    text = engine.shell_text(layout)
    env = {**os.environ, "DOCKER_HOST": "unix:///nowhere", "DOCKER_CONTEXT": "nowhere"}
    script = f"{text}docker image inspect {image} && docker buildx ls"
    subprocess.run(("sh", "-ec", script), env=env, check=True, capture_output=True)


def test_stop_leaves_no_trace(layout: Layout, docker: Callable[..., str], image: str) -> None:
    forwards = Path("/proc/sys/net/ipv4/ip_forward")
    engine.stop(layout, os.environ)
    before = (sorted(path.name for path in Path("/sys/class/net").iterdir()), forwards.read_text())
    engine.start(layout, os.environ)
    docker("run", "-d", "--rm", "--stop-timeout", "1", image, "sleep", "600")
    docker("network", "create", "further")
    assert engine.stop(layout, os.environ) is True
    assert of_engine(layout) == []
    assert not layout.run.exists()
    assert not layout.state.exists()
    assert (sorted(path.name for path in Path("/sys/class/net").iterdir()), forwards.read_text()) == before
    assert not list(CGROUPS.glob(f"**{layout.cgroup}"))
    assert str(layout.root) not in Path("/proc/mounts").read_text()
    assert engine.answer(layout) is None
    assert engine.stop(layout, os.environ) is False
    assert layout.data.is_dir()


def test_a_bridge_may_get_another_address(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """dockerd kept the address of its first start, and the rules had the second one's."""

    def bridge() -> str:
        command = (layout.bin / "docker", "-H", layout.host, "network", "inspect", "bridge")
        return str(json.loads(run(command).stdout)[0]["IPAM"]["Config"][0]["Subnet"])

    engine.start(layout, os.environ)
    first = bridge()
    engine.stop(layout, os.environ)
    monkeypatch.setattr(network, "CANDIDATES", tuple(one for one in network.CANDIDATES if str(one) != first))
    engine.start(layout, os.environ)
    second = bridge()
    engine.stop(layout, os.environ)
    assert second != first
