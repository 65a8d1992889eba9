"""What is newer than a lock; files of an earlier lock that are taken over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import catalog, components, lock, package, profile
from packaging.version import Version

from cannery.catalog.component import parse_component
from cannery.compat.io.stock import (
    Newer,
    Outdated,
    Stock,
    bounds_of,
    legend,
    newest_set,
    outdated_packages,
    ranges_of,
    table,
    upgrade_targets,
)
from cannery.compat.solve import upgrader
from cannery.errors import FindingsError, NetworkError
from cannery.lock.lock import Lock, LockedPackage, with_known_files
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options, Recipe
from cannery.recipe.select import select
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cannery.errors import CanneryError

DAY = "2026-06-01"


def recipe(**changes: object) -> Recipe:
    return select(catalog(profiles={"stack": profile(**changes)}), "stack", Options(), Arch.AMD64)


def look(found: Recipe, newest: dict[str, str], **made: str) -> tuple[Outdated, ...]:
    return outdated_packages(found, lock(found), Newer(made), Stock(newest, {}, {}))


def test_the_profile_s_own_packages_are_in_its_order() -> None:
    lines = look(recipe(), {"torch": "2.10.0", "ray": "2.60.0"}, torch="2.9.1+cpu", ray="2.50.0")
    assert [line.name for line in lines] == ["torch", "torch-npu", "ray"]
    assert lines[0] == Outdated("torch", "2.9.0", "2.9.1", "2.10.0")
    assert lines[2] == Outdated("ray", "2.50.0", "2.50.0", "2.60.0")
    assert [line.is_newer for line in lines] == [True, False, False]
    assert [line.is_held for line in lines] == [True, False, True]


@pytest.mark.parametrize("kind", ["constraints", "overrides"])
def test_a_wheel_moves_within_the_bounds_of_the_profile(kind: str) -> None:
    found = recipe(**{kind: [{"requirement": "ray<2.55", "reason": "a reason of ours"}]})
    fitting = {"ray": frozenset(map(Version, ("2.54.0", "2.60.0"))), "torch": frozenset({Version("2.13.0")})}
    stock = Stock({}, fitting, {}, bounds_of(lock_request(found)))
    ranges = ranges_of(found, lock(found), upgrader(found, catalog()), stock)
    assert ranges == {"ray": "ray>=2.50.0,<=2.54.0"}, "the table moves torch"


def test_a_move_that_no_set_has_does_not_fit_and_one_that_was_not_tried_is_marked() -> None:
    def made(error: CanneryError) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
        def resolve(moves: Mapping[str, str]) -> Mapping[str, str]:
            if moves:
                raise error
            return {"ray": "2.60.0"}

        return resolve

    moves = {"torch": "2.10.0"}
    assert newest_set(moves, made(FindingsError("no set"))) == Newer({"ray": "2.60.0"})
    lost = newest_set(moves, made(NetworkError("not reached\n  more")))
    assert lost == Newer({"ray": "2.60.0"}, moves, "not reached")
    lines = outdated_packages(recipe(), lock(recipe()), lost, Stock({}, {}, {}))
    assert table(lines)[1].split() == ["torch", "2.9.0", "2.10.0?", "-"]
    assert [line.is_newer for line in lines] == [False, False, True]
    assert [line.split()[0] for line in legend(lines, lost.why)] == ["?", "-"]


def test_what_is_newest_is_not_known_where_the_lock_has_a_newer_one() -> None:
    assert look(recipe(), {"ray": "2.49.0"}, ray="2.50.0")[2] == Outdated("ray", "2.50.0", "2.50.0", "")


def test_the_newest_release_of_a_source() -> None:
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
    lines = outdated_packages(found, lock(found), Newer({}), Stock({"vllm": "1.2"}, {}, {}))
    assert lines[-1] == Outdated("vllm", "1.0", "", "1.2")
    assert (lines[-1].is_newer, lines[-1].is_held) == (False, False)


def test_the_table_has_a_dash_for_what_is_not_there() -> None:
    lines = (Outdated("torch", "2.9.0", "2.9.0", "2.13.0"), Outdated("gone", "1.0", "", ""))
    assert table(lines) == (
        "package  locked  fits   newest",
        "torch    2.9.0   2.9.0  2.13.0",
        "gone     1.0     -      -",
    )


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
