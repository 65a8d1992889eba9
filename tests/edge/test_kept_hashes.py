"""An index that is no longer reached takes no hash out of a lock that has it; the same version's file is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_checkout import Small, make_small
from stub_index import StubIndex, make_wheel

from cannery.lock.lock import parse_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPONENT = """\
kind: wheels
summary: made up
index: elsewhere
metadata:
  "1.0": {requires: [], source: its METADATA}
  "1.5": {requires: [], source: its METADATA}
"""
DEAD = '{elsewhere: {urls: ["http://127.0.0.1:9/simple"]}}\n'


@pytest.fixture
def elsewhere() -> Iterator[StubIndex]:
    with StubIndex() as found:
        found.add(make_wheel("tool", "1.0"))
        found.add(make_wheel("tool", "1.5"))
        yield found


@pytest.fixture
def small(
    tmp_path: Path, elsewhere: StubIndex, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Small]:
    """A checkout whose `tool` comes from another index, with complete locks; then that index is gone."""
    with StubIndex() as index:
        found = make_small(tmp_path, index, capsys, monkeypatch)
        (found.root / "images/components/tool.yaml").write_text(COMPONENT)
        (found.root / "images/indexes.yaml").write_text(f'{{elsewhere: {{urls: ["{elsewhere.url}"]}}}}\n')
        assert found("lock").code == 0
        assert tool(found) == ("1.0", True)
        (found.root / "images/indexes.yaml").write_text(DEAD)
        yield found


def tool(small: Small, arch: str = "amd64") -> tuple[str, bool]:
    path = small.root / f"images/locks/stack/py3.11-{arch}.txt"
    packages = {package.name: package for package in parse_lock(path.read_text(), path.name).packages}
    return packages["tool"].version, packages["tool"].complete


def test_a_lock_keeps_the_file_of_the_same_version(small: Small) -> None:
    before = small.files()
    done = small("lock", "stack")
    assert (done.code, "INCOMPLETE" in done.out) == (0, False)
    assert small.files() == before


def test_another_version_has_no_hash_and_lock_says_so(small: Small) -> None:
    profile = small.profile()
    profile.write_text(profile.read_text().replace('{name: tool, version: "1.0"}', '{name: tool, version: "1.5"}'))
    done = small("lock", "stack")
    assert done.code == 0
    assert "INCOMPLETE: tool (index elsewhere not reached)" in done.out
    assert tool(small) == ("1.5", False)


def publish(small: Small, version: str, sha256: str = "a" * 64) -> None:
    (small.root / "images/hashes.yaml").write_text(
        'elsewhere: {source: "lists of others", date: "2026-11-28",'
        f" files: [{{file: tool-{version}-py3-none-any.whl, sha256: {sha256}}}]}}\n"
    )


def test_a_published_hash_makes_the_lock_complete(small: Small) -> None:
    profile = small.profile()
    profile.write_text(profile.read_text().replace('{name: tool, version: "1.0"}', '{name: tool, version: "1.5"}'))
    publish(small, "1.5")
    done = small("lock", "stack")
    assert (done.code, "INCOMPLETE" in done.out) == (0, False)
    assert "hash taken from images/hashes.yaml: tool" in done.out
    assert tool(small) == ("1.5", True)
    assert small("plan", "stack").code == 0


def test_what_the_index_gave_counts_more_than_a_published_hash(small: Small) -> None:
    before = small.files()
    publish(small, "1.0")
    assert small("lock", "stack").code == 0
    assert small.files() == before


def test_a_lock_that_was_made_from_a_hand_edited_file_is_made_anew(small: Small) -> None:
    path = small.root / "images/locks/stack/py3.11-amd64.txt"
    path.write_text("no lock\n")
    done = small("lock", "stack")
    assert done.code == 0, done.err
    assert tool(small) == ("1.0", False)
    assert tool(small, "arm64") == ("1.0", True)


def test_the_page_of_a_trial_is_another_file(small: Small) -> None:
    for words in ((), ("--pin", "tool==1.0")):
        assert small("report", "stack", *words).code == 0
    own, trial = sorted((file.stem for file in (small.root / "out/reports").iterdir()), key=len)
    assert trial.removeprefix(f"{own}-").isalnum()
