"""The own engine for real: fetched, started twice at once, killed, started again, stopped without a trace.

Needs root, Debian or Ubuntu, and the package mirror of the host's apt. CANNERY_ENGINE_CACHE may name a cache that holds
the packages already; the engine's data is removed at the end either way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cannery.engine.io.find import Engine, _own_engine
from cannery.engine.own import engine as owned_engine
from cannery.engine.own.layout import Layout
from cannery.engine.own.process import CGROUPS, daemons, remnants
from cannery.standin.io.apt import distribution_sources, fetch_debs, host_release, unpack
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

START = (
    "import os, sys, pathlib\n"
    "from cannery.engine.own import engine as owned_engine\n"
    "print(owned_engine.start(pathlib.Path(sys.argv[1]), os.environ, print).server.version)\n"
)


def say(line: str) -> None:
    print(line)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = Path(os.environ.get("CANNERY_ENGINE_CACHE") or tmp_path_factory.mktemp("cache"))
    yield folder
    owned_engine.remove_data(folder, os.environ, say)


def own_engine(cache: Path) -> Engine:
    """Our own engine, also where the machine has another that answers."""
    return _own_engine(os.environ, cache, start=True, say=say)


@pytest.fixture(scope="module")
def image(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    tree = tmp_path_factory.mktemp("tree")
    arch = run(("dpkg", "--print-architecture")).stdout.strip()
    (deb,) = fetch_debs(["busybox-static"], suite=host_release().codename, arch=arch, cache=cache)
    unpack(deb, tree)
    program = next(path for path in (tree / "bin/busybox", tree / "usr/bin/busybox") if path.is_file())
    for name in ("sh", "sleep", "nc"):
        (program.parent / name).symlink_to("busybox")
    engine = own_engine(cache)
    tar = subprocess.run(["tar", "-C", tree, "-c", "."], capture_output=True, check=True).stdout
    command = engine.command("import", "--change", "ENV PATH=/bin:/usr/bin", "-", "tiny:1")
    subprocess.run(command, input=tar, env=engine.client_env(os.environ), check=True, capture_output=True)
    return "tiny:1"


def docker(engine: Engine, *args: str) -> str:
    return run(engine.command(*args), env=engine.client_env(os.environ), timeout=60).stdout


def mirror_probe() -> str:
    """Shell command that succeeds where the distribution's mirror can be reached by TCP."""
    uri = distribution_sources(host_release())[0].uris[0]
    host, _, port = uri.split("//")[1].split("/")[0].rpartition("@")[2].partition(":")
    return f"nc -w 8 {host} {port or (443 if uri.startswith('https') else 80)} </dev/null"


def test_two_starts_at_once_share_one_daemon_and_hold_no_pipe(cache: Path) -> None:
    owned_engine.stop(cache, os.environ, say)
    both = [
        subprocess.Popen(
            [sys.executable, "-c", START, cache], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    outputs = [one.communicate(timeout=300)[0] for one in both]  # returns only when nobody holds the pipe
    assert [one.returncode for one in both] == [0, 0], outputs
    assert len(daemons(Layout.of(cache))) == 1


def test_containers_and_builds_reach_the_mirror(cache: Path, image: str, tmp_path: Path) -> None:
    engine = own_engine(cache)
    docker(engine, "run", "--rm", image, "sh", "-c", mirror_probe())
    (tmp_path / "Dockerfile").write_text(
        f"FROM {image} AS a\nRUN {mirror_probe()} && mkdir /opt\nFROM {image}\nCOPY --link --from=a /opt /opt\n"
    )
    command = engine.buildx_command("build", "--no-cache", "-t", "tiny:2", str(tmp_path))
    run(command, env=engine.client_env(os.environ), timeout=120)
    assert "tiny" in docker(engine, "image", "ls", "tiny:2")


def test_killed_daemon_is_started_again_and_leaves_no_orphan(cache: Path, image: str) -> None:
    engine = own_engine(cache)
    docker(engine, "run", "-d", "--name", "sleeper", "-p", "127.0.0.1::80", image, "sleep", "600")
    layout = Layout.of(cache)
    (pid,) = daemons(layout)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while daemons(layout) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert remnants(layout), "the container outlives its daemon, or this test shows nothing"
    engine = own_engine(cache)
    assert docker(engine, "ps", "-a", "--format", "{{.Names}} {{.State}}").split() == ["sleeper", "exited"]
    assert len(daemons(layout)) == 1
    docker(engine, "run", "--rm", image, "sh", "-c", mirror_probe())


def test_stop_leaves_no_trace(cache: Path, image: str) -> None:
    engine = own_engine(cache)
    docker(engine, "run", "-d", "--rm", "--stop-timeout", "1", image, "sleep", "600")
    layout = Layout.of(cache)
    assert owned_engine.stop(cache, os.environ, say) is True
    assert remnants(layout) == ()
    assert not layout.run.exists()
    assert not Path("/sys/class/net", layout.bridge).exists()
    assert not list(CGROUPS.glob(f"**/cannery-{layout.tag}"))
    assert str(layout.root) not in Path("/proc/mounts").read_text()
    assert owned_engine.status(cache).running is False
    assert owned_engine.stop(cache, os.environ, say) is False
    assert layout.data.is_dir()
