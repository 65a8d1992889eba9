"""A lock without the hashes of an index that was not reached: planned as it is, and completed for a build."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from small_checkout import Small, make_small
from stub_index import StubIndex, make_wheel

from cannery.errors import ExitCode
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
"""
WHEEL = make_wheel("tool", "1.0")
DEAD = "http://127.0.0.1:9/simple"


@pytest.fixture
def elsewhere() -> Iterator[StubIndex]:
    with StubIndex() as found:
        found.add(WHEEL)
        yield found


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    """A checkout whose `tool` comes from an index that was not reached when the locks were made."""
    monkeypatch.delenv("CI", raising=False)
    with StubIndex() as index:
        found = make_small(tmp_path, index, capsys, monkeypatch)
        (found.root / "images/components/tool.yaml").write_text(COMPONENT)
        assert "INCOMPLETE: tool" in found("lock").out
        yield found


def serve(small: Small, url: str) -> None:
    (small.root / "images/indexes.yaml").write_text(f'{{elsewhere: {{urls: ["{url}"]}}}}\n')


def tag(small: Small) -> str:
    done = small("plan", "stack", "--json")
    assert done.code == 0, done.err
    return str(json.loads(done.out)["reference"])


def requirements(small: Small) -> str:
    (folder,) = (small.root / "out").iterdir()
    return "".join(path.read_text() for path in sorted(folder.glob("groups/*.txt")))


def wheels(small: Small) -> list[str]:
    return [path.name for path in (small.root / "out").rglob("*.whl") if path.name == WHEEL[0]]


def test_check_and_plan_need_no_hash_and_agree(small: Small) -> None:
    check = small("check", "stack")
    assert (check.code, small("plan", "stack").code) == (0, 0)
    assert f"{DEAD}/tool/" in check.out
    assert "cannot be built" not in check.out


def test_a_render_without_the_index_names_the_wheel_that_is_missing(small: Small) -> None:
    done = small("render", "stack")
    assert done.code == 0, done.err
    assert "without the wheel of tool 1.0" in done.out
    assert f"{DEAD}/tool/" in done.out
    assert (wheels(small), "tool==1.0\n" in requirements(small)) == ([], True)


def test_an_index_that_answers_completes_a_build_and_changes_no_lock(small: Small, elsewhere: StubIndex) -> None:
    before, planned = small.files(), tag(small)
    serve(small, elsewhere.url)
    done = small("render", "stack")
    assert done.code == 0, done.err
    assert "taken on index elsewhere" in done.err
    assert (wheels(small), "tool==1.0 --hash=sha256:" in requirements(small)) == (["tool-1.0-py3-none-any.whl"], True)
    assert (small.files(), tag(small)) == (before, planned)
    serve(small, DEAD)
    assert "--hash=sha256:" in small("render", "stack").out + requirements(small), "an earlier build knew it"


def test_a_lock_that_becomes_complete_changes_no_tag(small: Small, elsewhere: StubIndex) -> None:
    planned = tag(small)
    serve(small, elsewhere.url)
    assert small("lock", "stack").code == 0
    text = (small.root / "images/locks/stack/py3.11-amd64.txt").read_text()
    assert parse_lock(text, "lock").complete
    assert tag(small) == planned


def test_another_version_changes_the_tag(small: Small, elsewhere: StubIndex) -> None:
    planned = tag(small)
    serve(small, elsewhere.url)
    profile = small.profile()
    profile.write_text(profile.read_text().replace("- {name: lib}", '- {name: lib, version: "2.0"}'))
    profile.write_text(profile.read_text().replace("2026-06-01", "2026-07-10"))
    assert small("lock", "stack").code == 0
    assert tag(small) != planned


@pytest.mark.parametrize("given", ["option", "CI"])
def test_locked_takes_no_hash(small: Small, elsewhere: StubIndex, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    serve(small, elsewhere.url)
    if given == "CI":
        monkeypatch.setenv("CI", "true")
    done = small("render", "stack", *(["--locked"] if given == "option" else []))
    assert (done.code, "no hash of tool 1.0" in done.err) == (3, True)
    assert elsewhere.seen == []
    if given == "CI":
        assert small("render", "stack", "--no-locked").code == 0


def test_a_build_without_the_index_ends_before_an_engine_is_asked_for(small: Small) -> None:
    done = small("image", "stack")
    assert (done.code, "no hash of tool 1.0" in done.err) == (ExitCode.NETWORK, True)
    assert f"not reached: index elsewhere ({DEAD}): connection refused" in done.err
    assert "run this on a host that reaches the index" in done.err


def test_a_build_whose_index_has_no_such_file_is_no_trouble_of_the_network(small: Small) -> None:
    with StubIndex() as empty:
        serve(small, empty.url)
        done = small("image", "stack")
    assert (done.code, "no hash of tool 1.0" in done.err) == (ExitCode.FINDINGS, True)
    assert f"index elsewhere ({empty.url}) has no wheel of tool 1.0" in done.err
    assert "--wheelhouse" in done.err


def test_a_file_that_is_not_of_the_hash_is_refused(small: Small, elsewhere: StubIndex) -> None:
    serve(small, elsewhere.url)
    elsewhere.body[WHEEL[0]] = WHEEL[1][:-1] + b"x"
    done = small("render", "stack")
    assert (done.code, "is not the file of the lock" in done.err) == (3, True)


def test_a_file_whose_name_leads_out_of_the_cache_is_none(
    small: Small, elsewhere: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = json.dumps(elsewhere._json("tool")).replace("tool-1.0-py3", "tool-1.0-1%2F..%2F..%2F..%2F..%2F..%2Fevil-py3")
    monkeypatch.setattr(elsewhere, "_json", lambda _project: json.loads(page))
    elsewhere.body["evil-py3-none-any.whl"] = WHEEL[1]
    serve(small, elsewhere.url)
    assert "without the wheel of tool 1.0" in small("render", "stack").out
    assert list(tmp_path.rglob("evil*")) == []


def test_a_wheel_of_your_own_completes_it_too(small: Small, tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / WHEEL[0]).write_bytes(WHEEL[1])
    done = small("render", "stack", "--wheelhouse", str(folder))
    assert done.code == 0, done.err
    assert wheels(small) == [WHEEL[0]]


def test_a_published_hash_plans_without_any_index(small: Small) -> None:
    (small.root / "images/hashes.yaml").write_text(
        'elsewhere: {source: "lists of others", date: "2026-11-28",'
        f" files: [{{file: {WHEEL[0]}, sha256: {'a' * 64}}}]}}\n"
    )
    done = small("render", "stack")
    assert done.code == 7, "the file itself is on that index alone"
    assert WHEEL[0] in done.err
