"""What differs between locks, what is newer than a lock, and what holds it back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import catalog, components, lock, package, packages, profile
from packaging.version import Version

from cannery.catalog.component import parse_component
from cannery.compat.stock import Release, Stock
from cannery.lock.lock import Lock, LockedPackage, LockRequest
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options, Recipe
from cannery.recipe.select import select
from cannery.upgrade.change import lock_change, with_known_files
from cannery.upgrade.outdated import (
    Evidence,
    Outdated,
    at_day,
    changed_names,
    named_packages,
    outdated_packages,
    source_lines,
    table,
    upgrade_targets,
)
from cannery.vocab import Arch

DAY = "2026-06-01"


def test_packages_that_move_come_and_go_and_what_has_to_be_fetched() -> None:
    old = (package("a", "1"), package("b", "1"), package("c", "1"))
    new = (package("a", "2", size=5_000_000), package("c", "1"), package("d", "1", size=700_000))
    change = lock_change(old, new)
    assert (change.count, change.fetch, change.unknown) == (3, 5_700_000, ())
    assert str(change) == "3 packages, 5.7 MB to fetch"
    assert str(lock_change(old, (*old[:2], package("c", "2", size=100_000)))) == "1 package, 0.1 MB to fetch"
    assert lock_change(old, old) == lock_change((), ())


def test_another_file_of_the_same_version_is_fetched() -> None:
    other = replace(package("a"), sha256="0" * 64)
    assert (lock_change([package("a")], [other]).count, lock_change([package("a")], [other]).fetch) == (0, 1_000_000)


def test_a_new_package_without_a_size_is_named() -> None:
    def bare(version: str) -> object:
        return package("t", version, file="", sha256="", size=0)

    assert lock_change([bare("1")], [bare("1")]).unknown == ()  # type: ignore[list-item]
    change = lock_change([bare("1")], [bare("2")])  # type: ignore[list-item]
    assert str(change) == "1 package, 0.0 MB to fetch and t, of unknown size"


def recipe(**changes: object) -> Recipe:
    return select(catalog(profiles={"stack": profile(**changes)}), "stack", Options(), Arch.AMD64)


def stock(newest: dict[str, str], targets: tuple[tuple[str, Arch], ...], *, fits: bool = True) -> Stock:
    every = frozenset(targets)
    found = {n: (Release(Version(text), every if fits else frozenset()),) for n, text in newest.items()}
    return Stock(found, every, {})


def look(
    found: Recipe, newest: dict[str, str], pins: dict[str, str] | None = None, **fresh: str
) -> dict[str, Outdated]:
    """The lines by name; `fresh` are versions of the lock as it would be today."""
    mine = lock(found)
    after = tuple(replace(p, version=fresh.get(p.name.replace("-", "_"), p.version)) for p in mine.packages)
    today, request = replace(mine, packages=after), lock_request(found)
    there = stock(newest, upgrade_targets(found))
    evidence = Evidence(today, pins or {}, there)
    names = dict.fromkeys([*named_packages(found, request, mine, today), *changed_names(mine, today)])
    return {line.name: line for line in outdated_packages(found, mine, evidence, names)}


def test_the_profile_s_own_packages_come_first_and_in_its_order() -> None:
    lines = look(recipe(), {}, numpy="2.4", antlr4="5.0")
    assert [*lines] == ["torch", "torch-npu", "ray", "numpy", "antlr4"]
    assert [line.direct for line in lines.values()] == [True, True, True, False, False]
    assert lines["torch"] == Outdated("torch", "2.9.0", "2.9.0", "", direct=True)
    assert (lines["numpy"].locked, lines["numpy"].upgraded) == ("2.3.0", "2.4")


def test_tags_of_a_source_that_are_newer() -> None:
    known = {
        **components(),
        "vllm": parse_component(
            {
                "kind": "source",
                "summary": "x",
                "install": "wheel",
                "releases": {"1.0": {"requires": [], "source": "made up"}},
            }
        ),
    }
    listed = [{"name": "torch", "version": "2.9.0"}, {"name": "ray"}, {"name": "vllm", "release": "1.0"}]
    mine = catalog(profiles={"stack": profile(components=listed)}, components=known)
    found = select(mine, "stack", Options(), Arch.AMD64)
    assert source_lines(found, {}) == ("vllm: pinned to release 1.0; its repository was not asked: not looked at",)
    refs = {"HEAD": "1" * 40, "refs/tags/v1.0": "2" * 40, "refs/tags/v1.1": "3" * 40, "refs/tags/v2.0rc1": "4" * 40}
    assert source_lines(found, {"vllm": (refs, "")}) == (f"vllm: pinned to release 1.0; newest tag v1.1, {'3' * 40}",)
    del refs["refs/tags/v1.1"]
    assert source_lines(found, {"vllm": (refs, "")}) == ("vllm: pinned to release 1.0; no newer tag",)


def test_the_day_moves_and_what_is_held_earlier_stays_held() -> None:
    request = LockRequest("p", "3.11", Arch.AMD64, (), (), (), (), "2026-01-02", (), ())
    dated = replace(request, package_dates=(("early", "2025-01-01"), ("late", "2026-03-01")))
    assert at_day(dated, DAY) == replace(request, exclude_newer=DAY, package_dates=(("early", "2025-01-01"),))
    assert at_day(replace(request, exclude_newer="2027-01-01"), DAY).exclude_newer == "2027-01-01"


def test_names_that_a_fresh_lock_has_otherwise() -> None:
    mine = lock(recipe())
    fresh = replace(mine, packages=(*(p for p in packages() if p.name != "sympy"), package("zzz")))
    assert changed_names(mine, fresh) == ("sympy", "zzz")
    assert changed_names(mine, None) == ()


def test_the_table_says_what_is_not_there_with_a_dash() -> None:
    lines = (
        Outdated("torch", "2.9.0", "2.9.0", "2.13.0", direct=True),
        Outdated("gone", "1.0", "", "", direct=False),
    )
    assert table(lines) == (
        "package  locked  upgraded  newest",
        "torch    2.9.0   2.9.0     2.13.0",
        "gone     1.0     -         -",
    )
    assert table(lines, works=False)[0] == "package  locked  to try  newest"


def test_rows_are_of_what_the_profile_names_and_of_what_is_asked_for_and_changes() -> None:
    found = recipe(
        constraints=[{"requirement": "SymPy>=1", "reason": "a reason of ours"}],
        exclude_newer_packages={"Antlr4": {"date": "2026-02-01", "reason": "a reason of ours"}},
        overrides=[{"requirement": "absent==1", "reason": "a reason of ours"}],
    )
    mine, request = lock(found), lock_request(found)
    own = ("torch", "torch-npu", "ray", "antlr4", "sympy")
    assert named_packages(found, request, mine, mine) == own
    newer = replace(mine, packages=tuple(replace(p, version="9") for p in mine.packages))
    assert named_packages(found, request, mine, newer) == (*own, "numpy"), "CANN asks for it"
    bare = recipe()
    assert named_packages(bare, lock_request(bare), mine, mine) == own[:3]


def test_an_upgrade_has_to_fit_every_target_of_the_profile() -> None:
    target = {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11", "pythons": ["3.10", "3.11"]}
    wide = catalog(profiles={"stack": profile(target={**target, "arch": ["amd64", "arm64"]})})
    every = (("3.11", Arch.AMD64), ("3.11", Arch.ARM64), ("3.10", Arch.AMD64), ("3.10", Arch.ARM64))
    assert upgrade_targets(select(wide, "stack", Options(python="3.10"), Arch.AMD64)) == every
    narrow = catalog(profiles={"stack": profile(target={**target, "arch": ["arm64"]})})
    assert upgrade_targets(select(narrow, "stack", Options(arch="amd64"), Arch.AMD64)) == (("3.11", Arch.AMD64),)


# Hashes that an index which is not reached cannot tell


def gap(name: str, version: str = "1.0", index: str = "cpu") -> LockedPackage:
    return package(name, version, file="", sha256="", size=0, index=index)


def locked(*those: LockedPackage, **changes: object) -> Lock:
    return replace(Lock("p", "3.11", Arch.AMD64, "0" * 64, DAY, "uv 0.9.0", those), **changes)


BOUND = package("t", index="cpu", via=("old",))


def test_a_new_package_without_a_hash_is_of_unknown_size() -> None:
    moved = lock_change([BOUND, package("a")], [gap("t", "2.0"), package("a", "2.0")])
    assert moved.unknown == ("t",)
    assert str(moved) == "2 packages, 1.0 MB to fetch and t, of unknown size"


def test_files_of_the_same_version_and_index_are_taken_over() -> None:
    old = locked(BOUND, package("a"))
    new = locked(replace(gap("t"), via=("new",)), package("a", "2.0"), exclude_newer="2026-07-01", inputs="1" * 64)
    kept = with_known_files(new, old)
    assert kept == replace(new, packages=(replace(BOUND, via=("new",)), package("a", "2.0")))
    assert kept.complete


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (locked(gap("t", "2.0")), locked(BOUND)),
        (locked(gap("t", index="other")), locked(BOUND)),
        (locked(gap("t"), arch=Arch.ARM64), locked(BOUND)),
        (locked(gap("t"), python="3.10"), locked(BOUND)),
        # A file of a later day is none for an earlier bound.
        (locked(gap("t"), exclude_newer="2026-01-01"), locked(BOUND)),
        (locked(gap("t")), locked(gap("t"))),
        (locked(gap("t")), None),
    ],
)
def test_nothing_else_is_taken_over(new: Lock, old: Lock | None) -> None:
    assert with_known_files(new, old) == new
