"""The catalog that a run before has read: taken where nothing changed, and only then."""

from __future__ import annotations

import os
import pickle
import shutil
from typing import TYPE_CHECKING

import pytest
from checkouts import FROZEN

from cannery.catalog.io import kept, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cannery.catalog.catalog import Catalog

MINE = "kind: wheels\nsummary: mine\n"


class Place:
    """A catalog of its own, a folder of the user's, and how often they were read."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images, self.own, self.cache = folder / "images", folder / "own", folder / "cache"
        self.code, self.reads = folder / "code", 0
        self.monkeypatch = monkeypatch
        shutil.copytree(FROZEN, self.images)
        (self.own / "components").mkdir(parents=True)
        (self.own / "components/mine.yaml").write_text(MINE)
        (self.code / "catalog").mkdir(parents=True)
        (self.code / "catalog/fields.py").write_text("")
        monkeypatch.setattr(kept, "PACKAGE", self.code)
        whole = read.load_catalog

        def counted(images: Path, own: Path | None) -> Catalog:
            self.reads += 1
            return whole(images, own)

        monkeypatch.setattr(read, "load_catalog", counted)

    def load(self) -> Catalog:
        return kept.load_catalog(self.images, self.own, self.cache)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def append(path: Path) -> None:
    path.write_text(path.read_text() + "# another line\n")


def test_a_catalog_is_read_once(place: Place) -> None:
    first = place.load()
    again = place.load()
    assert place.reads == 1
    assert again == first
    assert again.components["mine"].summary == "mine"


CHANGES: dict[str, Callable[[Place], object]] = {
    "profile": lambda p: append(p.images / "profiles/quickstart.yaml"),
    "new profile": lambda p: shutil.copy(p.images / "profiles/quickstart.yaml", p.images / "profiles/another.yaml"),
    "component gone": lambda p: (p.own / "components/mine.yaml").unlink(),
    "chips": lambda p: append(p.images / "chips.yaml"),
    "stand-in": lambda p: append(p.images / "standin/recipe.yaml"),
    "registries": lambda p: append(p.images / "bases/registries.yaml"),
    "a file that is refused": lambda p: (p.images / "profiles/another.yml").write_text("summary: x\n"),
    "a folder that is refused": lambda p: (p.images / "components/more").mkdir(),
    "the user's file": lambda p: append(p.own / "components/mine.yaml"),
    "the user's first profile": lambda p: (p.own / "profiles").mkdir(),
    "the user's table": lambda p: shutil.copy(p.images / "indexes.yaml", p.own / "indexes.yaml"),
    "code": lambda p: append(p.code / "catalog/fields.py"),
    "new code": lambda p: (p.code / "vocab.py").write_text(""),
    "pydantic": lambda p: p.monkeypatch.setattr(kept.pydantic, "VERSION", "9"),
    "packaging": lambda p: p.monkeypatch.setattr(kept.packaging, "__version__", "9"),
    "working folder": lambda p: p.monkeypatch.chdir(p.own.parent),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changed_is_read_again(place: Place, change: Callable[[Place], object]) -> None:
    place.load()
    change(place)
    found = place.load()
    assert place.reads == 2
    now = read.load_catalog(place.images, place.own)
    assert (found.profiles, found.components) == (now.profiles, now.components)
    assert list(map(str, found.problems)) == list(map(str, now.problems))


def test_a_catalog_with_a_problem_is_not_kept(place: Place) -> None:
    (place.own / "components/mine.yaml").write_text("kind: nothing\n")
    assert place.load().problems
    assert place.load().problems
    assert place.reads == 2


class Hostile:
    def __init__(self, word: str) -> None:
        self.word = word

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.word,)


@pytest.mark.parametrize("content", [b"", b"no pickle", "hostile", "another value", "no class"])
def test_a_file_that_is_no_kept_catalog_is_written_again(place: Place, content: bytes | str) -> None:
    first = place.load()
    (file,) = (place.cache / "catalog").iterdir()
    whole = file.read_bytes()
    made = {
        "hostile": pickle.dumps(Hostile(str(place.own / "ran"))),
        "another value": pickle.dumps(first.tools),
        "no class": b"\x80\x04\x8c\x16cannery.catalog.fields\x8c\x04text\x93.",
    }
    file.write_bytes(content if isinstance(content, bytes) else made[content])
    assert place.load() == first
    assert place.reads == 2
    assert not (place.own / "ran").exists()
    assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written(place: Place) -> None:
    place.cache.write_text("no folder")
    assert place.load() == place.load()
    assert place.reads == 2


def test_the_oldest_go(place: Place) -> None:
    for number in range(kept.MOST + 3):
        (place.own / "components/mine.yaml").write_text(f"{MINE}# {number}\n")
        place.load()
    assert len(list((place.cache / "catalog").iterdir())) == kept.MOST
    place.load()
    assert place.reads == kept.MOST + 3, "the newest is kept"
