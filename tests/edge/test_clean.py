"""`clean`: what is shown of each kind, and what goes by age and number. The engine is a stub of docker's API."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from small_process import AS_A_USER

from cannery import cli
from cannery.assemble.content import Content, Place, Wheel
from cannery.assemble.io.layer import write_layer
from cannery.assemble.io.sink import GzipSink
from cannery.commands import host
from cannery.engine.io.find import NoEngineError
from cannery.errors import ExitCode, UnableError
from cannery.store.io.store import Store
from cannery.vocab import CLEAN_KINDS
from tests.unit.test_sink import LARGE, packed_wheel

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = 86400
TARGET = "8.5.0-910b-ubuntu22.04-py3.11"
PLAN, OTHER = "0" * 12, "1" * 12


class Engine:
    """docker's API, as far as `clean` asks it."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.images: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []

    api = property(lambda self: self)

    def df(self) -> dict[str, Any]:
        return {"Images": self.images, "BuildCache": self.records}

    def inspect_image(self, name: str) -> dict[str, Any]:
        days = {"new": 1, "old": 30}[name]
        return {"Metadata": {"LastTagTime": time.strftime("%Y-%m-%dT%H:%M:%S.123456789Z", time.gmtime(ago(days)))}}

    def remove_image(self, name: str) -> None:
        self.gone.append(name)

    def prune_builds(self, filters: dict[str, list[str]], *, all: bool) -> None:  # noqa: A002
        assert all
        self.gone += filters["id"]


def ago(days: float) -> float:
    return time.time() - days * DAY


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    found = Engine()
    monkeypatch.setattr(host, "find_engine", lambda _: None)
    monkeypatch.setattr(host, "docker_client", lambda _: found)
    return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def nobody(_: object) -> None:
        raise NoEngineError("no Docker engine is running", hint="")

    monkeypatch.setenv("CANNERY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "find_engine", nobody)
    return tmp_path / "cache"


@pytest.fixture
def clean(cache: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, dict[str, Any]]]:
    def run(*words: str) -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        assert cli.main(["clean", *words, "--json"], ROOT) == ExitCode.DONE
        return {row["kind"]: row for row in json.loads(capsys.readouterr().out)["kinds"]}

    return run


def file(path: Path, days: float, size: int = 100_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (ago(days), ago(days)))
    return path


def layer(store: Store, content: bytes) -> str:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        about = tarfile.TarInfo("file")
        about.size = len(content)
        tar.addfile(about, io.BytesIO(content))
    stream.seek(0)
    return store.add(stream).diff_id


def image(store: Store, layers: list[str], days: float, *names: str) -> str:
    value = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": layers}, "of": names}
    found = store.put(json.dumps(value).encode(), *names)
    os.utime(store.blob_path(found), (ago(days), ago(days)))
    return found


def age_all(store: Store, days: float) -> None:
    """Make what prune spares for its youth old."""
    for path in (*store.folder.glob("blobs/sha256/*"), *store.folder.glob("layers/*.json")):
        os.utime(path, (min(path.stat().st_mtime, ago(days)),) * 2)


@pytest.mark.parametrize("folder", ["~", "{home}/../home", "{home}/..", "{link}", "/", "{root}", "{root}/images"])
def test_a_cache_among_your_own_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    monkeypatch.setenv("HOME", str(home))
    mine = file(home / "git" / "mine" / "file", 1)
    link.symlink_to(home)
    monkeypatch.setenv("CANNERY_CACHE", folder.format(home=home, link=link, root=ROOT))
    assert cli.main(["clean", "sources"], ROOT) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "is not a folder for the cache only" in said
    is_home = folder in {"~", "{home}/../home", "{link}"}
    assert ("is your home directory" in said) is is_home
    assert mine.exists()


def test_the_home_of_the_password_file_counts_where_home_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("CANNERY_CACHE", str(tmp_path))
    assert cli.main(["clean", "sources"], ROOT) == ExitCode.USAGE
    assert "is not a folder for the cache only" in capsys.readouterr().err


def test_nothing_is_removed_where_no_kind_is_named(clean: Any, cache: Path) -> None:  # noqa: ANN401
    kept = [file(cache / "wheels/ab/cd/x.whl", 1), file(cache / "rootfs/x.tar", 30)]
    rows = clean()
    assert list(rows)[:2] == ["trials", "builds"], "what is missed least first"
    assert (rows["wheels"]["count"], rows["rootfs"]["count"], rows["sources"]["count"]) == (1, 1, 0)
    assert rows["wheels"]["bytes"] >= 100_000 == pytest.approx(rows["wheels"]["reclaimable"], rel=0.05)
    old = clean("--older-than", "7d")
    assert (old["wheels"]["reclaimable"], old["rootfs"]["old"]) == (0, 1)
    assert all(path.is_file() for path in kept)


def test_the_sizes_add_up_to_what_is_on_the_disk(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image, a trial on it, the cache and a rendered folder share wheels and layers."""
    monkeypatch.setattr(host, "_engine_parts", lambda _context: {})
    wheel = file(cache / "wheels/ab/cd/x.whl", 1, 500_000)
    rendered = file(tmp_path / "out/stack/Dockerfile", 1)
    rendered.with_name("x.whl").hardlink_to(wheel)
    store = Store(cache / "images")
    shared, own = layer(store, os.urandom(300_000)), layer(store, os.urandom(50_000))
    image(store, [shared], 1, "stack:1")
    image(store, [shared, own], 1, f"stack:{TARGET}-{PLAN}")
    assert cli.main(["clean", "--json"], ROOT, work=tmp_path) == ExitCode.DONE
    rows = {row["kind"]: row["bytes"] for row in json.loads(capsys.readouterr().out)["kinds"]}
    assert list(rows) == list(CLEAN_KINDS)
    sizes = {kind: round(size / 1e5, 1) for kind, size in rows.items() if size > 20_000}
    assert sizes == {"images": 3.0, "trials": 0.5, "wheels": 5.0, "out": 1.0}
    assert cli.main(["clean"], ROOT, work=tmp_path) == ExitCode.DONE
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", f"{sum(rows.values()) / 1e6:.1f}", "MB"]


def test_a_kind_goes_alone(clean: Any, cache: Path) -> None:  # noqa: ANN401
    wheel, rootfs = file(cache / "wheels/ab/cd/x.whl", 1), file(cache / "rootfs/x.tar", 1)
    assert list(clean("wheels")) == ["wheels"]
    assert not wheel.exists()
    assert rootfs.exists()


def test_of_out_rendered_folders_go_and_what_the_cache_has_too_is_not_freed(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = file(cache / "wheels/ab/cd/x.whl", 1, 5_000_000)
    rendered = file(tmp_path / "out/stack/Dockerfile", 1).parent
    (rendered / "x.whl").hardlink_to(wheel)
    others = [file(tmp_path / "out/reports/stack.html", 1), file(tmp_path / "out/.stamps/1", 1)]
    assert cli.main(["clean", "out", "--json"], ROOT, work=tmp_path) == ExitCode.DONE
    (row,) = json.loads(capsys.readouterr().out)["kinds"]
    assert (row["count"], row["old"]) == (1, 1)
    assert (row["bytes"], row["reclaimable"]) == pytest.approx((5_100_000, 100_000), rel=0.05)
    assert not rendered.exists()
    assert all(path.exists() for path in (wheel, *others))


def used(folder: Path) -> int:
    """The bytes on disk of the files below a folder."""
    found = [path.lstat() for path in folder.rglob("*") if not path.is_dir()]
    return sum({one.st_ino: one.st_blocks * 512 for one in found}.values())


def linked_cache(work: Path, cache: Path) -> Store:
    """An image and a trial that share a layer, unpacked layers, a leftover, a rendered folder; links to all wheels."""
    store, wheels = Store(cache / "images"), []
    for number, name in enumerate(("one", "two", "three", "code")):
        wheel = packed_wheel(work, {f"{name}/a.bin": LARGE[number:] * 4}, name=name)
        kind = "layers/code/x" if name == "code" else f"wheels/{name[:2]}/{name}"
        (cache / kind).mkdir(parents=True)
        wheels.append(wheel.rename(cache / kind / wheel.name))

    def of(*wheels: Path) -> str:
        content = Content(tuple(Wheel(wheel, "x") for wheel in wheels))
        return store.write(lambda part: write_layer(content, Place("3.11", 0), [], part, GzipSink)).diff_id

    base, shared, own, tried = layer(store, os.urandom(60_000)), of(wheels[0], wheels[3]), of(wheels[1]), of(wheels[2])
    image(store, [base, shared, own], 1, f"stack:{TARGET}-{PLAN}", f"stack:{TARGET}")
    image(store, [base, shared, tried], 30, f"stack:{TARGET}-{OTHER}-trial")
    layer(store, os.urandom(70_000))
    age_all(store, 5)
    for diff_id in (base, shared, own, tried):
        store.unpacked(diff_id)
    file(work / "out/stack/Dockerfile", 1)
    (work / "out/stack/one.whl").hardlink_to(wheels[0])
    (work / "other.whl").hardlink_to(wheels[1])  # a folder that another checkout has rendered
    return store


OF_LINKS = ("trials", "builds", "unpacked", "images", "wheels", "layers", "out")


@pytest.mark.parametrize(
    "kinds",
    [*((kind,) for kind in OF_LINKS), ("images", "wheels"), ("trials", "images"), ("builds", "images"), OF_LINKS],
)
def test_as_much_is_freed_as_is_shown(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kinds: tuple[str, ...]
) -> None:
    """Layers have links to wheels and byte code, and so have rendered folders, also those of other checkouts."""
    linked_cache(tmp_path, cache)

    def rows(*words: str) -> dict[str, int]:
        assert cli.main(["clean", *words, "--json"], ROOT, work=tmp_path) == ExitCode.DONE
        return {row["kind"]: row["reclaimable"] for row in json.loads(capsys.readouterr().out)["kinds"]}

    shown, before = rows(), used(tmp_path)
    assert shown["buildkit"] == 0, "of an engine alone"
    told, gain = rows(*kinds), before - used(tmp_path)
    names = 14_000  # of images, and locks
    assert gain - names <= sum(told.values()) <= gain
    if len(kinds) == 1:
        assert shown[kinds[0]] == told[kinds[0]]


def test_an_image_has_the_wheels_that_are_cleaned(clean: Any, cache: Path, tmp_path: Path) -> None:  # noqa: ANN401
    store = linked_cache(tmp_path, cache)
    clean("wheels", "layers", "unpacked", "trials")
    assert list(cache.glob("wheels/*/*")) == []
    for diff_id in store.needed(f"stack:{TARGET}").layers:
        store.check(store.needed_layer(diff_id))
        store.unpacked(diff_id)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--older-than", "7d"], {"1", "3"}),
        (["--keep", "1"], {"1"}),
        (["--keep", "3"], {"1", "3", "9"}),
        (["--keep", "3", "--older-than", "2d"], {"1", "3", "9"}),
        (["--keep", "1", "--older-than", "2w"], {"1", "3", "9"}),
        (["--older-than", "30h"], {"1"}),
        (["--keep", "0"], set()),
    ],
)
def test_by_age_and_number(clean: Any, cache: Path, words: list[str], left: set[str]) -> None:  # noqa: ANN401
    for days in (1, 3, 9, 20):
        file(cache / f"rootfs/{days}", days)
    clean("rootfs", *words)
    assert {path.name for path in (cache / "rootfs").iterdir()} == left


def test_trials_go_and_the_layers_that_they_share_stay(clean: Any, cache: Path) -> None:  # noqa: ANN401
    store = Store(cache / "images")
    shared, own = layer(store, b"s" * 50_000), layer(store, os.urandom(50_000))
    kept = image(store, [shared], 40, f"stack:{TARGET}-{PLAN}", f"stack:{TARGET}")
    trial = image(store, [shared, own], 30, f"stack:{TARGET}-{OTHER}-trial")
    base = image(store, [shared], 30, "cannery/base:1")
    age_all(store, 5)
    rows = clean()
    assert (rows["trials"]["count"], rows["images"]["count"]) == (1, 2)
    assert 50_000 < rows["trials"]["reclaimable"] < 64_000, "what others have too is not counted"
    clean("trials")
    assert set(store.names().values()) == {kept, base}
    assert store.find(trial) is None
    assert store.knows(shared)
    assert not store.knows(own)


def test_unpacked_layers_go_and_are_made_again(
    clean: Any,  # noqa: ANN401
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "TAKES_LONG", 10_000)
    store = Store(cache / "images")
    diff_id = layer(store, b"s" * 50_000)
    image(store, [diff_id], 1, "cannery/base:1")
    folder = store.unpacked(diff_id)
    assert clean()["unpacked"]["count"] == 1
    assert cli.main(["clean"], ROOT) == ExitCode.DONE
    assert f"removes these two kinds; the cache is {cache}\n" in capsys.readouterr().err
    assert cli.main(["clean", "unpacked"], ROOT) == ExitCode.DONE
    assert capsys.readouterr().err == "removing unpacked (1): 0.0 GB\n"
    assert not folder.exists()
    assert store.unpacked(diff_id) == folder


def test_what_no_image_has(clean: Any, cache: Path) -> None:  # noqa: ANN401
    assert clean("builds")["builds"]["count"] == 0
    blob = file(cache / "images/blobs/sha256" / ("a" * 64), 0)
    clean("builds")
    assert blob.exists(), "another run may be about to name its image"
    os.utime(blob, (0, 0))
    clean("builds")
    assert not blob.exists()


def test_all_images(clean: Any, cache: Path) -> None:  # noqa: ANN401
    store = Store(cache / "images")
    image(store, [layer(store, b"s")], 0, "cannery/base:1")
    clean("images")
    assert store.names() == {}
    assert list(store.folder.glob("blobs/sha256/*")) == [], "no other run uses the store: what is new goes, too"


@pytest.mark.parametrize("text", [b"[", b"[]", b'{"config": "text"}', b'{"config": {"Labels": [1]}}'])
def test_an_image_that_is_none_is_counted_and_goes(clean: Any, cache: Path, text: bytes) -> None:  # noqa: ANN401
    store = Store(cache / "images")
    found = image(store, [layer(store, b"s")], 1, "cannery/base:1")
    bad = f"sha256:{hashlib.sha256(text).hexdigest()}"
    store.blob_path(bad).write_bytes(text)
    (name,) = store.folder.glob("names/*.json")
    name.write_text(name.read_text().replace(found, bad))
    assert store.find("cannery/base:1") is None
    assert clean()["images"]["count"] == 1
    clean("images")
    assert store.names() == {}


def test_what_a_link_in_the_cache_leads_to_stays(clean: Any, cache: Path, tmp_path: Path) -> None:  # noqa: ANN401
    mine, big = file(tmp_path / "mine/x", 1), file(tmp_path / "big/ab/x.whl", 1)
    wheel = file(cache / "wheels/cd/y.whl", 1)
    (cache / "wheels/bb").symlink_to(mine.parent)
    clean("wheels")
    assert (mine.exists(), wheel.exists()) == (True, False)
    (cache / "rootfs").symlink_to(big.parent.parent)  # a kind on another disk
    clean("rootfs")
    assert not big.exists()


def test_the_engines_images_and_records(clean: Any, engine: Engine, cache: Path) -> None:  # noqa: ANN401
    ours = {"Labels": {"org.cannery.plan": PLAN}, "Size": 900, "SharedSize": 400, "Containers": 0}
    engine.images = [
        {"Id": "old", "RepoTags": [f"stack:{TARGET}-{PLAN}"], **ours},
        {"Id": "new", "RepoTags": [f"stack:{TARGET}-{OTHER}", f"stack:{TARGET}"], **ours},
        {"Id": "old", "RepoTags": ["theirs:1"], **ours, "Labels": None},
        {"Id": "old", "RepoTags": ["running:1"], **ours, "Containers": 1},
    ]
    engine.records = [
        {"ID": "r1", "Size": 70, "InUse": False, "LastUsedAt": "2020-01-01T00:00:00.5Z"},
        {"ID": "r2", "Size": 80, "InUse": True, "LastUsedAt": "2020-01-01T00:00:00.5Z"},
        {"ID": "r3", "Size": 90, "InUse": False, "LastUsedAt": None, "CreatedAt": "no date"},
    ]
    rows = clean("--older-than", "7d")
    assert (rows["trials"]["bytes"], rows["images"]["reclaimable"]) == (500, 0)
    assert (rows["buildkit"]["bytes"], rows["buildkit"]["reclaimable"]) == (160, 70)
    assert engine.gone == []
    clean("trials", "images", "buildkit", "--older-than", "7d")
    assert engine.gone == [f"stack:{TARGET}-{PLAN}", "r1"]


def test_an_engine_that_does_not_answer_is_left_out(
    clean: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(_: object) -> None:
        raise UnableError("it does not answer", hint="start it")

    monkeypatch.setattr(host, "find_engine", refused)
    assert clean()["buildkit"]["count"] == 0
    assert cli.main(["clean", "buildkit"], ROOT) == ExitCode.DONE
    assert "it does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--older-than", "7"],
        ["--older-than", "d"],
        ["--older-than", "-1d"],
        ["--older-than", "7y"],
        ["--keep", "-1"],
        ["--keep", "all"],
        ["whels"],
    ],
)
def test_wrong_words_remove_nothing(cache: Path, words: list[str]) -> None:
    kept = file(cache / "rootfs/x", 30)
    assert cli.main(["clean", "rootfs", *words], ROOT) == ExitCode.USAGE
    assert kept.exists()


def test_what_this_user_may_not_remove_is_named(cache: Path) -> None:
    folder = cache / "images/unpacked" / ("1" * 64)
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/passwd").touch()
    (folder / "etc").chmod(0o555)
    command = (*AS_A_USER, sys.executable, "build.py", "clean", "unpacked")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    (folder / "etc").chmod(0o755)
    assert done.returncode == ExitCode.UNABLE
    assert f"error: {folder}: cannot be written: permission denied\n" in done.stderr
