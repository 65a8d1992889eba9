"""What the engine tests share: the quickstart image, built once by the user's own command, and device nodes to mount.

A missing engine is a failure here, never a skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docker_engine import engine as own_engine
from docker_engine.daemon import Layout, daemon_config
from docker_engine.packages import install, installed

from cannery.context import read_context
from cannery.engine.io.find import Engine, NoEngineError, find_engine
from cannery.sandbox.io.able import why_not
from cannery.standin.io.rootfs import is_registered
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
PROFILE = "quickstart"
NODES = (*(f"/dev/davinci{n}" for n in range(8)), "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
# A major number that no driver of Linux has: such a node exists, and opens with ENXIO.
UNUSED_MAJOR = 511
# build.py's own work on another checkout than the one that it stands in.
ELSEWHERE = "import sys, pathlib, cannery.cli as c; sys.exit(c.main(sys.argv[2:], pathlib.Path(sys.argv[1])))"


@dataclass(frozen=True)
class Cannery:
    """build.py as a user calls it on a checkout, and the engine that it uses."""

    engine: Engine
    env: dict[str, str]
    root: Path = ROOT

    def command(self, *arguments: str) -> tuple[str, ...]:
        """The command of build.py on this checkout, to be run in ROOT."""
        script = ("build.py",) if self.root == ROOT else ("-c", ELSEWHERE, str(self.root))
        return (sys.executable, *script, *arguments)

    def build_py(self, *arguments: str, check: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run build.py; fail on another exit code than `check`."""
        command = self.command(*arguments)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if check is not None:
            assert done.returncode == check, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def docker(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the docker client on the engine."""
        done = subprocess.run(
            self.engine.command(*arguments), env=self.env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"docker {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@dataclass(frozen=True)
class Image:
    """A built image: what `build.py image --json` said of it."""

    table: dict[str, Any]

    @property
    def reference(self) -> str:
        """Its tag with the plan."""
        return str(self.table["references"][0])


@contextmanager
def containerd_engine(folder: Path) -> Iterator[Layout]:
    """Start an empty engine of tools/engine.py that keeps images in containerd's store; remove it at the end."""
    shared, layout = (Layout.of(one) for one in (read_context(ROOT).cache, folder))
    assert installed(shared) or install(shared)
    layout.root.mkdir()
    (layout.root / "versions").symlink_to(shared.root / "versions")
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_containerd = {"features": {"containerd-snapshotter": True}}
        monkeypatch.setattr(own_engine, "daemon_config", lambda *words: daemon_config(*words) | with_containerd)
        own_engine.start(layout, os.environ)
    try:
        yield layout
    finally:
        own_engine.remove(layout, os.environ)


def bare_cache(cache: Path, other: Path) -> None:
    """Give the cache `other` the base's packages and the wheels of `cache`, and nothing that was made of them."""
    if why := why_not(cache):
        pytest.fail(f"boxes are needed: {why}")
    for path in (*cache.glob("rootfs/*.tar"), *cache.glob("wheels/??/*/*.whl")):
        target = other / path.relative_to(cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:  # on another disk
            target.symlink_to(path)


def small_checkout(
    cannery: Cannery, root: Path, name: str, profile: str, change: Callable[[Path], None] = lambda _images: None
) -> Cannery:
    """build.py on a checkout in `root` whose one profile is `name`, of the text `profile`, locked.

    `change` gets the copy of images/ before that.
    """
    left_out = shutil.ignore_patterns("profiles", "locks", "__pycache__")
    shutil.copytree(ROOT / "images", root / "images", ignore=left_out)
    shutil.copytree(ROOT / "templates", root / "templates", ignore=left_out)
    shutil.copytree(ROOT / "images/locks/_tools", root / "images/locks/_tools")
    profiles = root / "images/profiles"
    profiles.mkdir()
    (profiles / f"{name}.yaml").write_text(profile)
    change(root / "images")
    own = Cannery(cannery.engine, cannery.env, root)
    own.build_py("lock", name)
    return own


def layers_of(cannery: Cannery, reference: str) -> list[str]:
    """The digests of an image's layers, from the lowest up."""
    return list(json.loads(cannery.docker("image", "inspect", reference).stdout)[0]["RootFS"]["Layers"])


@pytest.fixture(scope="session")
def cannery() -> Cannery:
    """The engine that the environment leads to; where none answers that of tools/engine.py, which is then in it.

    It is not stopped at the end: the next run of tests finds its images. `.ci/run` does.
    """
    try:
        engine = find_engine(os.environ)
    except NoEngineError:
        subprocess.run((sys.executable, "tools/engine.py", "start"), cwd=ROOT, check=True)
        layout = Layout.of(read_context(ROOT).cache)
        os.environ |= {"DOCKER_HOST": layout.host, "PATH": f"{layout.bin}:{os.environ['PATH']}"}
        engine = find_engine(os.environ)
    return Cannery(engine, dict(os.environ))


@pytest.fixture(scope="session")
def image(cannery: Cannery) -> Image:
    """The quickstart image, built and verified."""
    return Image(json.loads(cannery.build_py("image", PROFILE, "--json").stdout))


class Early:
    """A command that was started beside other tests, since it takes minutes of which most are another core's."""

    def __init__(self, cannery: Cannery, folder: Path, *arguments: str) -> None:
        self.arguments = arguments
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("w") as out, self.err.open("w") as err:
            command = (sys.executable, "build.py", *arguments)
            self.process = subprocess.Popen(command, cwd=cannery.root, stdout=out, stderr=err)

    def result(self) -> str:
        """Wait for its end; return its standard output, or fail with what it said."""
        code = self.process.wait()
        assert code == 0, f"{self.arguments}: {code}\n{self.out.read_text()}\n{self.err.read_text()}"
        return self.out.read_text()


# A guide's stack for arm64, from releases of the package index alone.
RELEASE_STACK = ("image", "verl-qwen3.5", "--sources", "release", "--arch", "arm64", "--base", "standin", "--json")


EARLY = pytest.StashKey[Early]()


@pytest.fixture(scope="session")
def release_stack(
    request: pytest.FixtureRequest, cannery: Cannery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Early | None]:
    """The build of RELEASE_STACK, begun as soon as engine tests begin; None where no test asks, or no QEMU is there."""
    is_asked = any("test_release_stack" in item.nodeid for item in request.session.items)
    is_able = read_context(ROOT).arch is Arch.ARM64 or is_registered(Arch.ARM64)
    if not is_asked or not (is_able or os.environ.get("CI") == "true"):
        yield None
        return
    # Two folders of tests have this fixture, each as its own.
    early = request.config.stash.get(EARLY, None)
    if early is None:
        early = Early(cannery, tmp_path_factory.mktemp("release-stack"), *RELEASE_STACK)
        request.config.stash[EARLY] = early
    yield early
    early.process.terminate()
    early.process.wait()


@pytest.fixture(scope="session")
def device_nodes() -> Iterator[tuple[str, ...]]:
    """The device nodes of an A2 host. Where this host has none, stand-in nodes are made, and taken away again."""
    made = [node for node in NODES if not Path(node).exists()]
    if made:
        print(f"\nno NPU on this host: stand-in nodes made with mknod: {', '.join(made)}")
    for minor, node in enumerate(made):
        os.mknod(node, 0o660 | 0o020000, os.makedev(UNUSED_MAJOR, minor))
    try:
        yield NODES
    finally:
        for node in made:
            Path(node).unlink(missing_ok=True)


def started(cannery: Cannery, arguments: Sequence[str]) -> str:
    """Start a container in the background that sleeps, and return its id."""
    return cannery.docker("run", "--detach", *arguments).stdout.strip()
