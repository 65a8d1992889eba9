"""`outdated PROFILE` with the real uv on a small checkout; and what an index is asked for releases."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet
from small_checkout import LATER, TODAY, Small, make_small
from stub_index import StubIndex, make_sdist, make_wheel

from cannery.catalog.addresses import Index
from cannery.compat.io.stock import ask_stock
from cannery.errors import ExitCode
from cannery.lock.io.indexes import ask_all
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEAD = "http://127.0.0.1:9/simple"


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def rows(small: Small, *words: str) -> dict[str, list[str]]:
    """Package → what it is locked at, the newest that fits, the newest."""
    value = json.loads(small("outdated", "stack", "--json", *words).out)
    return {row["name"]: [row["locked"], row["fits"], row["newest"]] for row in value["packages"]}


def test_the_table_has_what_is_locked_what_fits_and_what_is_newest(small: Small) -> None:
    before = small.files()
    done = small("outdated", "stack")
    assert done.code == 0, done
    *lines, count, step, why = done.out.splitlines()
    assert [line.split() for line in lines] == [
        ["package", "locked", "fits", "newest"],
        ["pip", "26.0", "26.0", "26.0"],
        ["torch", "2.8.0", "2.9.0", "2.10.0"],
        ["torch-npu", "2.8.0", "2.9.0", "2.10.0"],
        ["tool", "1.0", "1.5", "1.5"],
        ["lib", "1.0", "2.0", "2.5"],
    ]
    assert count == "stack for 8.5.0-910b-ubuntu22.04-py3.11-amd64: 4 of 5 can be newer"
    assert "images/profiles/stack.yaml" in step
    assert "build.py lock stack" in step
    assert "build.py check stack --pin torch==2.10.0" in why
    assert small.files() == before, "nothing below images/ is written"


def test_the_same_as_json_for_another_arch(small: Small) -> None:
    value = json.loads(small("outdated", "stack", "--arch", "arm64", "--json").out)
    assert value["target"] == "8.5.0-910b-ubuntu22.04-py3.11-arm64"
    assert value["packages"][4] == {"name": "lib", "locked": "1.0", "fits": "2.0", "newest": "2.5", "resolved": True}
    assert value["troubles"] == []


def test_the_versions_that_it_prints_can_be_locked(small: Small) -> None:
    foretold = {name: fits for name, (_locked, fits, _newest) in rows(small).items()}
    text = small.profile().read_text().replace("2026-06-01", TODAY)
    text = text.replace("'2.8.0'", "'2.9.0'").replace('"2.8.0"', '"2.9.0"').replace('"1.0"', '"1.5"')
    small.profile().write_text(text)
    assert small("lock", "stack").code == 0
    for arch in ("amd64", "arm64"):
        assert foretold.items() <= small.versions(arch=arch).items()
    assert ": 0 of 5 can be newer" in small("outdated", "stack").out


def test_a_release_without_a_file_for_another_arch_of_the_profile_is_none_to_move_to(small: Small) -> None:
    small.index.add(make_wheel("tool", "1.8", ["dep"], tag="cp311-cp311-manylinux_2_28_x86_64"), uploaded=LATER)
    assert rows(small, "--arch", "amd64")["tool"] == ["1.0", "1.5", "1.8"]


@pytest.mark.parametrize("spoil", ["missing", "stale"])
def test_without_a_current_lock_it_is_exit_3(small: Small, spoil: str) -> None:
    path = small.root / "images/locks/stack/py3.11-amd64.txt"
    if spoil == "missing":
        path.unlink()
    else:
        small.profile().write_text(small.profile().read_text().replace("2026-06-01", "2026-06-02"))
    done = small("outdated", "stack")
    assert (done.code, done.out) == (ExitCode.FINDINGS, "")
    assert f"the lock is {spoil}" in done.err
    assert "build.py lock stack" in done.err
    assert small.index.seen == []


def test_an_index_that_is_not_reached_is_exit_7(small: Small) -> None:
    small.index.status = 503
    done = small("outdated", "stack")
    assert (done.code, done.out) == (ExitCode.NETWORK, "")
    assert "server error" in done.err


def test_an_index_that_was_not_asked_is_named(small: Small) -> None:
    (small.root / "images/components/tool.yaml").write_text(
        'kind: wheels\nsummary: made up\nindex: elsewhere\nmetadata: {"1.0": {requires: [dep], source: made up}}\n'
    )
    assert small("lock", "stack").code == 0
    done = small("outdated", "stack")
    assert done.code == 0
    assert "not asked: index elsewhere (http://127.0.0.1:9/simple): connection refused" in done.err
    assert rows(small)["tool"] == ["1.0", "1.0", ""]


def test_a_pin_for_once_is_not_for_this_command(small: Small) -> None:
    done = small("outdated", "stack", "--pin", "lib==2.0")
    assert (done.code, "unknown option --pin" in done.err) == (ExitCode.USAGE, True)


def test_a_constraint_of_the_profile_is_not_passed_by(small: Small) -> None:
    text = small.profile().read_text()
    small.profile().write_text(text + 'constraints: [{requirement: "tool<1.2", reason: "a reason of ours"}]\n')
    assert small("lock", "stack").code == 0
    assert rows(small)["tool"] == ["1.0", "1.0", "1.5"]


@pytest.mark.parametrize(
    ("asks", "fits"),
    [("tool<1.2", {"tool": "1.0", "torch": "2.9.0"}), ("torch<2.9", {"tool": "1.5", "torch": "2.8.0"})],
)
def test_what_another_package_asks_for_counts(small: Small, asks: str, fits: dict[str, str]) -> None:
    small.index.add(make_wheel("asker", "1.0", [asks]))
    (small.root / "images/components/asker.yaml").write_text("kind: wheels\nsummary: made up\n")
    small.profile().write_text(small.profile().read_text() + "  - {name: asker}\n")
    assert small("lock", "stack").code == 0
    found = rows(small)
    assert {name: found[name][1] for name in fits} == fits


def test_a_move_that_could_not_be_resolved_is_marked(small: Small) -> None:
    (small.root / "images/components/torch.yaml").write_text(
        'kind: wheels\nsummary: made up\nindex: elsewhere\nmetadata: {"2.8.0": {requires: [], source: made up}}\n'
    )
    assert small("lock", "stack").code == 0
    done = small("outdated", "stack", "--chip", "a3")
    lines = {line.split()[0]: line.split() for line in done.out.splitlines()}
    assert lines["torch"] == ["torch", "2.8.0", "2.9.0?", "-"]
    assert lines["torch-npu"] == ["torch-npu", "2.8.0", "2.9.0?", "2.10.0"]
    assert lines["tool"] == ["tool", "1.0", "1.5", "1.5"], "that is resolved without the move"
    assert "index elsewhere, which was not reached" in " ".join(lines["?"])
    assert ": 2 of 5 can be newer" in done.out
    assert "build.py check stack --chip a3 --pin torch-npu==2.10.0" in done.out


def test_an_index_that_was_not_reached_is_named_where_a_folder_has_its_packages(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small.root / "images/components/tool.yaml").write_text("kind: wheels\nsummary: made up\nindex: elsewhere\n")
    name, content = make_wheel("tool", "1.0", ["dep"])
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / name).write_bytes(content)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert small("lock", "stack").code == 0
    done = small("outdated", "stack")
    assert "not asked: index elsewhere (http://127.0.0.1:9/simple): connection refused" in done.err


# Releases


def test_yanked_broken_and_preview_releases(tmp_path: Path) -> None:
    with StubIndex() as index:
        for version in ("1.0", "1.2rc1"):
            index.add(make_wheel("a", version), uploaded="2026-03-04T05:06:07Z")
        index.add(make_sdist("a", "1.1"))
        index.add(make_wheel("a", "1.3"))
        index.add(make_wheel("b", "2.0rc1"))
        pages = index._json

        def yanked(project: str) -> dict[str, object]:
            page = pages(project)
            for file in page["files"]:  # type: ignore[attr-defined]
                file["yanked"] = file["filename"].startswith("a-1.3")
                file["requires-python"] = ">=3.12" if file["filename"].startswith("a-1.1") else ">=3.8"
            return page

        index._json = yanked  # type: ignore[method-assign]
        settings = PipSettings(index_url=index.url)
        asked = [("a", "default"), ("b", "default"), ("none", "default")]
        here, later = ("3.11", Arch.AMD64), ("3.12", Arch.AMD64)
        found, newer, both = (
            ask_stock(asked, {}, settings, targets, partial(ask_all, settings=settings))
            for targets in ([here], [later], [here, ("3.12", Arch.ARM64)])
        )
    assert [found.newest[name] for name in ("a", "b", "none")] == ["1.1", "2.0rc1", ""]
    assert (found.newest_for("a"), newer.newest_for("a")) == ("1.0", "1.1")
    assert replace(newer, bounds={"a": SpecifierSet("<1.1")}).newest_for("a") == "1.0"
    assert replace(both, bounds={"a": SpecifierSet(">1.0")}).newest_for("a") is None
    assert [found.has("a", version) for version in ("1", "1.0.0", "1.01", "1.2rc1", "1.3")] == [
        *(True, True, False, True, False),
    ]
    assert found.trouble == {}


def test_places_count_as_for_a_lock(tmp_path: Path) -> None:
    """Extra places serve the default index what it lacks, and a bound index their files beside its own."""
    links = tmp_path / "links"
    links.mkdir()
    for made in (make_wheel("a", "9.0"), make_wheel("c", "3.0"), make_wheel("t", "2.0+cpu"), make_wheel("u", "4.0")):
        (links / made[0]).write_bytes(made[1])
    with StubIndex() as main, StubIndex(json=False) as bound:
        main.add(make_wheel("a", "1.0"))
        main.add(make_wheel("t", "5.0"))
        bound.add(make_wheel("t", "1.0+cpu"))
        settings = PipSettings(index_url=main.url, find_links=(str(links),))
        indexes = {"bound": Index(urls=(DEAD, bound.url)), "dead": Index(urls=(DEAD,))}
        asked = [("a", "default"), ("c", "default"), ("t", "bound"), ("u", "dead"), ("a-b", "dead")]
        found = ask_stock(asked, indexes, settings, [("3.11", Arch.ARM64)], partial(ask_all, settings=settings))
    versions = {name: sorted(map(str, fitting)) for name, fitting in found.fitting.items()}
    t = ["1.0", "1.0+cpu", "2.0", "2.0+cpu"]
    assert versions == {"a": ["1.0"], "c": ["3.0"], "t": t, "u": ["4.0"], "a-b": []}
    assert [found.has("t", version) for version in ("1.0", "1.0+cpu", "1+cpu", "1.0+cu1")] == [True, True, True, False]
    assert [*found.trouble] == ["a-b"]
    assert found.has("a-b", "7")
