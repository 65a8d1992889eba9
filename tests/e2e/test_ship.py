"""Images on their way: to a registry that wants a login and drops connections, into files and out of them again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from small_checkout import Done

from cannery import cli
from cannery.context import read_context
from cannery.engine.io.find import docker_client, find_engine
from cannery.util.io.files import sha256_file
from cannery.util.io.pip_settings import read_pip_settings
from cannery.vocab import Arch
from tests.e2e.engine_fixtures import ELSEWHERE, ROOT, Cannery
from tests.e2e.registry import Registry, login
from tests.e2e.ship_fixtures import PROFILE, Flaky, Shipyard, make_checkout

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with Registry(tmp_path_factory.mktemp("registry"), read_context(ROOT).cache) as found:
        yield found


@contextmanager
def shipyard(folder: Path, host: str) -> Iterator[Shipyard]:
    """A checkout on the engine at `host`."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("DOCKER_HOST", host)
        root = make_checkout(folder)
        settings = read_pip_settings(dict(os.environ))  # pip takes a second to tell, at each command
        monkeypatch.setattr("cannery.util.io.pip_settings.read_pip_settings", lambda *_: settings)
        monkeypatch.setenv("CANNERY_CACHE", str(folder / "cache"))
        engine = find_engine(os.environ)
        found = Shipyard(root, folder / "cache", docker_client(engine))
        found.clean()
        yield found
        found.clean()


@pytest.fixture(scope="module")
def yard(cannery: Cannery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipyard]:
    with shipyard(tmp_path_factory.mktemp("shipyard"), cannery.engine.host) as found:
        yield found


class Ship:
    """build.py on the checkout, at a registry."""

    def __init__(self, yard: Shipyard, registry: Registry, capture: pytest.CaptureFixture[str], folder: Path) -> None:
        self.yard, self.registry, self.capture, self.folder = yard, registry, capture, folder
        self.image = f"{registry.host}/team"

    def __call__(self, command: str, *words: str, code: int = 0) -> Done:
        self.capture.readouterr()
        own = (PROFILE, "--base", "standin") if command != "load" else ()
        found = cli.main([command, *own, *words], self.yard.root)
        text = self.capture.readouterr()
        done = Done(found, text.out, text.err)
        assert found == code, f"{command} {words}: {found}\n{text.out}\n{text.err}"
        assert "Traceback" not in text.err
        return done

    @property
    def reference(self) -> str:
        return self.yard.plan.reference


@pytest.fixture
def ship(
    yard: Shipyard,
    registry: Registry,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ship]:
    monkeypatch.setenv("DOCKER_CONFIG", str(login(tmp_path / "docker", [registry.host])))
    yield Ship(yard, registry, capsys, tmp_path)
    yard.clean()


def at(ship: Ship, name: str) -> tuple[str, ...]:
    """A place of its own in the registry for a test."""
    return ("--registry", f"{ship.image}/{name}")


def test_push_needs_a_verified_image(ship: Ship) -> None:
    image = ship.yard.make()
    done = ship("push", *at(ship, "unproved"), code=3)
    assert "verify has not passed for this image" in done.err
    ship.yard.passes(image)
    assert "digest" in ship("push", *at(ship, "unproved")).out


def test_push_refuses_an_image_that_its_tag_does_not_tell_of(ship: Ship) -> None:
    ship.yard.passes(ship.yard.make(about={"org.cannery.plan": "0" * 12}))
    done = ship("push", *at(ship, "other"), code=3)
    assert "its label org.cannery.plan is 000000000000" in done.err


def test_push_pull_and_the_moving_tag(ship: Ship) -> None:
    place = at(ship, "round")
    image = ship.yard.make()
    ship.yard.passes(image)
    pushed = json.loads(ship("push", *place, "--json").out)
    assert pushed["id"] == image
    assert pushed["aliases"] == [pushed["reference"].replace(f"-{ship.yard.plan.digest}", "")]
    again = ship("push", *place)
    assert "nothing to push" in again.err
    ship.yard.clean()
    pulled = json.loads(ship("pull", *place, "--json").out)
    assert (pulled["id"], pulled["digest"]) == (image, pushed["digest"])
    for reference in ship.yard.plan.references:
        assert ship.yard.client.images.get(reference).id == image


def test_a_pushed_tag_does_not_change(ship: Ship) -> None:
    place = at(ship, "released")
    ship.yard.passes(ship.yard.make("a"))
    first = json.loads(ship("push", *place, "--json").out)["digest"]
    other = ship.yard.make("b")
    ship.yard.passes(other)
    done = ship("push", *place, code=3)
    assert "is another image" in done.err
    assert "--force" in done.err
    forced = json.loads(ship("push", *place, "--force", "--json").out)
    assert forced["digest"] != first
    ship.yard.clean()
    assert json.loads(ship("pull", *place, "--json").out)["id"] == other


def test_two_architectures_share_a_tag(ship: Ship) -> None:
    place = at(ship, "both")
    arches: dict[Arch, str] = {}
    for arch in Arch:
        image = ship.yard.make(arch=arch)
        ship.yard.passes(image, arch)
        arches[arch] = image
        ship("push", "--arch", arch, *place)
    ship.yard.clean()
    for arch, image in arches.items():
        ship.yard.passes(json.loads(ship("pull", "--arch", arch, *place, "--json").out)["id"], arch)
        assert ship.yard.has(image)
        assert "nothing to push" in ship("push", "--arch", arch, *place).err
        ship.yard.clean()


def test_pull_says_what_was_looked_for_and_what_lists_the_rest(ship: Ship) -> None:
    done = ship("pull", *at(ship, "near"), code=7)
    assert ship.reference in done.err
    assert "build.py image" in done.err
    assert "build.py index" in done.err


def test_a_wrong_password_is_said_within_five_seconds(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    ship.yard.passes(ship.yard.make())
    for password, words in (("wrong-password", "it does not take the login"), ("", "have no login")):
        folder = login(ship.folder / f"docker-{password}", [ship.registry.host] if password else [], password)
        monkeypatch.setenv("DOCKER_CONFIG", str(folder))
        for command in ("push", "pull"):
            begun = time.monotonic()
            done = ship(command, *at(ship, "denied"), code=7)
            assert words in done.err
            assert "docker login" in done.err
            assert "wrong-password" not in done.out + done.err
            assert time.monotonic() - begun < 5


def test_a_registry_that_drops_connections(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    image = ship.yard.make("flaky", layers=4, size=6_000_000)
    ship.yard.passes(image)
    with Flaky(ship.registry.port, after=4_000_000, times=3) as flaky:
        monkeypatch.setenv("DOCKER_CONFIG", str(login(ship.folder / "docker", [flaky.host])))
        pushed = json.loads(ship("push", "--registry", f"{flaky.host}/team/flaky", "--json").out)
        assert flaky.dropped == 3
    monkeypatch.setenv("DOCKER_CONFIG", str(login(ship.folder / "docker", [ship.registry.host])))
    ship.yard.clean()
    pulled = json.loads(ship("pull", *at(ship, "flaky"), "--json").out)
    assert (pulled["id"], pulled["digest"]) == (image, pushed["digest"])


def test_image_reuse_pulls_what_is_there(ship: Ship) -> None:
    place = at(ship, "reuse")
    image = ship.yard.make()
    ship.yard.passes(image)
    ship("push", *place)
    ship.yard.clean()
    table = json.loads(ship("image", "--reuse", "--no-verify", "--json", *place).out)
    assert (table["id"], table["pulled"]) == (image, f"{place[1]}/{ship.reference}")
    assert table["references"] == list(ship.yard.plan.references)


def test_save_and_load(ship: Ship) -> None:
    image = ship.yard.make()
    path = ship.folder / "image.tar"
    ship("save", "--output", str(path))
    side = json.loads(Path(f"{path}.json").read_text())
    assert (side["sha256"], side["bytes"]) == (sha256_file(path), path.stat().st_size)
    assert side["image"]["platform"] == f"linux/{ship.yard.plan.recipe.target.arch}"
    ship.yard.clean()
    loaded = json.loads(ship("load", str(path), "--json").out)
    assert loaded["id"] == ship.yard.client.images.get(ship.reference).id
    # containerd's store names an image by its manifest, which a Docker archive does not have.
    assert ship.yard.has(image)


def test_an_image_of_another_architecture_is_handed_on(ship: Ship) -> None:
    host = str(ship.yard.plan.recipe.target.arch)
    other = next(arch for arch in Arch if arch != host)
    image = ship.yard.make(arch=other)
    for command in ("save", "bundle"):
        path = ship.folder / f"{command}.tar"
        ship(command, "--arch", other, "--output", str(path))
        assert json.loads(Path(f"{path}.json").read_text())["image"]["platform"] == f"linux/{other}"
        ship.yard.clean()
        said = ship("load", str(path), code=3).err
        assert f"the image is for linux/{other}, and this host runs linux/{host}" in said
        assert ship.yard.client.images.list(PROFILE) == []
        ship("load", str(path), "--force")
        assert ship.yard.has(image)
    ship.yard.clean()
    assert standalone(path).returncode == 3
    assert standalone(path, "--force").returncode == 0


def test_load_takes_no_file_that_is_not_whole(ship: Ship) -> None:
    ship.yard.make()
    path = ship.folder / "image.tar"
    ship("save", "--output", str(path))
    ship.yard.clean()
    whole = path.read_bytes()
    for content, words in (
        (whole[:-4096], "cut off"),
        (b"".join((whole[:90_000], b"x", whole[90_001:])), "its sha256 is"),
    ):
        path.write_bytes(content)
        assert words in ship("load", str(path), code=3).err
    path.write_bytes(whole)
    beside = Path(f"{path}.json")
    text = beside.read_text()
    beside.write_text(text.replace("linux/amd64", "linux/s390x").replace("linux/arm64", "linux/s390x"))
    assert "the image is for linux/s390x" in ship("load", str(path), code=3).err
    beside.unlink()
    assert "image.tar.json is not beside it" in ship("load", str(path), code=3).err
    path.write_bytes(whole[: len(whole) // 2])
    assert "the archive is broken" in ship("load", str(path), "--force", code=3).err
    assert not [tag for image in ship.yard.client.images.list() for tag in image.tags if PROFILE in tag]


def test_a_full_disk_leaves_nothing(ship: Ship) -> None:
    ship.yard.make(size=2_000_000)
    small = ship.folder / "small"
    small.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)), check=True)
    try:
        # What cannot be known before is how far an image packs: this one does not.
        done = ship("bundle", "--output", str(small / "image.tar"), code=4)
        assert "no space left on device" in done.err
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(("umount", str(small)), check=True)


def standalone(bundle: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The loader of a bundle, taken out of it as a user would."""
    subprocess.run(("tar", "-xf", bundle.name, "load.py"), cwd=bundle.parent, check=False, capture_output=True)
    command = (sys.executable, "-I", "load.py", bundle.name, *words)
    return subprocess.run(command, cwd=bundle.parent, capture_output=True, text=True, check=False)


def test_a_complete_bundle_loads_by_itself_and_by_docker(ship: Ship) -> None:
    image = ship.yard.make()
    path = ship.folder / "whole.tar"
    ship("bundle", "--output", str(path))
    first = sha256_file(path)
    ship("bundle", "--output", str(path))
    assert sha256_file(path) == first
    ship.yard.clean()
    done = standalone(path)
    assert (done.returncode, ship.yard.has(image)) == (0, True), done.stderr
    ship.yard.clean()
    with path.open("rb") as stream:
        ship.yard.client.images.load(stream)
    assert ship.yard.has(image)
    ship.yard.clean()
    ship("load", str(path))
    assert ship.yard.has(image)


def test_a_bundle_since_holds_what_is_new_and_needs_its_base(ship: Ship) -> None:
    old = ship.yard.make("old", layers=6)
    ship.yard.client.images.get(old).tag(PROFILE, "old")
    full = ship.folder / "old.tar"
    ship("bundle", "--output", str(full))
    new = ship.yard.make("new", layers=6)
    path = ship.folder / "new.tar"
    for since in (f"{PROFILE}:old", str(full), f"{full}.json"):
        done = ship("bundle", "--output", str(path), "--since", since)
        assert "1 of 7 layers are new" in done.err
        assert path.stat().st_size < full.stat().st_size / 3
    ship.yard.forget(ship.reference)
    assert ship.yard.client.images.get(f"{PROFILE}:old").id == old
    # What is above the changed layer comes out of the old image again.
    done = standalone(path)
    assert (done.returncode, ship.yard.has(new)) == (0, True), done.stderr
    ship.yard.forget(ship.reference)
    ship("load", str(path))
    assert ship.yard.has(new)
    ship.yard.clean()
    alone = standalone(path)
    assert alone.returncode == 3
    for said in (ship("load", str(path), code=3).err, alone.stderr):
        assert "the base of this bundle is missing or different" in said
        assert json.loads(Path(f"{full}.json").read_text())["image"]["id"] in said
    ship.yard.client.images.get(ship.yard.make("a third", layers=5)).tag(PROFILE, "old")
    ship.yard.forget(ship.reference)
    assert standalone(path).returncode == 3


@pytest.mark.parametrize("about", [{}, {"only": "labels"}], ids=["equal", "labels"])
def test_a_bundle_since_the_same_layers_is_a_small_one(ship: Ship, about: dict[str, str]) -> None:
    """A job that bundles each night gets a file each night."""
    old = ship.yard.make()
    ship.yard.client.images.get(old).tag(PROFILE, "old")
    new = ship.yard.make(about=about)
    assert (old == new) == (not about)
    path = ship.folder / "new.tar"
    done = ship("bundle", "--output", str(path), "--since", f"{PROFILE}:old")
    assert "0 of 4 layers are new" in done.err
    assert "only the image's configuration" in done.err
    assert path.stat().st_size < 40_000
    ship.yard.forget(ship.reference)
    loaded = standalone(path)
    assert (loaded.returncode, ship.yard.has(new)) == (0, True), loaded.stderr
    ship.yard.forget(ship.reference)
    ship("load", str(path))
    found = ship.yard.client.images.get(ship.reference)
    assert (found.labels.get("only"), ship.yard.has(new)) == (about.get("only"), True)


def test_a_changed_bundle_leaves_nothing_on_the_engine(ship: Ship) -> None:
    ship.yard.make()
    path = ship.folder / "whole.tar"
    ship("bundle", "--output", str(path))
    ship.yard.clean()
    with tarfile.open(path) as tar:
        largest = max(tar.getmembers(), key=lambda member: member.size)
    content = bytearray(path.read_bytes())
    content[largest.offset_data + 1000] ^= 1
    path.write_bytes(content)
    done = standalone(path)
    assert done.returncode == 3
    assert "and should be" in done.stderr
    path.write_bytes(content[: largest.offset_data + largest.size // 2])
    done = standalone(path)
    assert done.returncode == 3
    assert "cut off" in done.stderr
    assert not [tag for image in ship.yard.client.images.list() for tag in image.tags if PROFILE in tag]


@contextmanager
def killed(ship: Ship, command: str, *words: str, after: float) -> Iterator[subprocess.Popen[bytes]]:
    """build.py in a process of its own, killed some seconds after it has begun to move bytes."""
    own = (PROFILE, "--base", "standin") if command != "load" else ()
    line = (sys.executable, "-c", ELSEWHERE, str(ship.yard.root), command, *own, *words)
    with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        for told in process.stderr:
            if told.startswith((b"saving", b"bundling", b"loading", b"checking", b"pushing")):
                break
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        yield process


def test_nothing_half_written_is_taken_for_whole(ship: Ship) -> None:
    chance = random.Random(6)  # the same moments each time
    image = ship.yard.make("killed", layers=4, size=8_000_000)
    ship.yard.passes(image)
    for turn, command in enumerate(("save", "bundle") * 2):
        path = ship.folder / f"{command}.tar"
        with killed(ship, command, "--output", str(path), after=chance.random() * 0.4):
            pass
        if path.exists():  # from the turn before, or done before it was killed
            code = cli.main(["load", str(path)], ship.yard.root)
            assert code in {0, 3}, f"{turn}: {command}"
        ship(command, "--output", str(path))
        assert json.loads(Path(f"{path}.json").read_text())["sha256"] == sha256_file(path)
        assert not Path(f"{path}.part").exists()
    ship.yard.clean()
    for _ in range(2):
        with killed(ship, "load", str(ship.folder / "save.tar"), after=chance.random() * 0.3):
            pass
    assert image in ship("load", str(ship.folder / "save.tar")).out
    place = at(ship, "killed")
    for _ in range(2):
        with killed(ship, "push", *place, after=chance.random() * 0.3):
            pass
    pushed = json.loads(ship("push", *place, "--json").out)
    ship.yard.clean()
    pulled = json.loads(ship("pull", *place, "--json").out)
    assert (pulled["id"], pulled["digest"]) == (image, pushed["digest"])
