"""The solver over the table: pins move together, upwards, within rows for the target, to what an index has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from factories import catalog, components, profile

from cannery.catalog.catalog import Compatibility
from cannery.catalog.component import parse_component
from cannery.compat.solve import Solver, newest_pins, upgrader
from cannery.recipe.recipe import Options, Recipe
from cannery.recipe.select import select
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Collection

CANN = "8.5.0"


def table(*rows: tuple[str, dict[str, str]], ranks: dict[str, str] | None = None) -> Compatibility:
    """A table; a row is (`NAME==VERSION` and perhaps ` of SOURCE`, what it fits)."""
    sources = {
        name: {"what": name, "rank": rank, "date": "2026-01-01"} for name, rank in (ranks or {"t": "table"}).items()
    }
    values = [
        {"of": of.partition(" of ")[0], "fits": fits, "source": of.partition(" of ")[2] or "t"} for of, fits in rows
    ]
    return Compatibility.model_validate({"sources": sources, "rows": values})


def npu(version: str, torch: str, cann: str = CANN, **more: str) -> tuple[str, dict[str, str]]:
    return f"torch-npu=={version}", {"torch": torch, "cann": cann, **more}


PAIRS = (
    npu("2.9.0", "2.9.0"),
    npu("2.9.0.post1", "2.9.0"),
    npu("2.10.0", "2.10.0", "9.0.0"),
    npu("2.9.1rc1", "2.9.1"),
    npu("2.8.0", "2.8.0"),
    npu("2.7.1", "2.7.1"),
    ("torchvision==0.24.0", {"torch": "2.9.0"}),
    ("torchvision==0.23.0", {"torch": "2.8.0"}),
)


def recipe(pins: dict[str, str | None], **changes: object) -> Recipe:
    """A recipe of pinned wheels; a name that ends in `!` is a source at that version."""
    known = {
        **components(),
        "torchvision": parse_component({"kind": "wheels", "summary": "x"}),
        "tool": components()["torch-npu"],
    }
    known |= {"plugin": known["tool"]}
    listed = []
    for name, version in pins.items():
        if name.endswith("!"):
            known[name[:-1]] = parse_component(
                {"kind": "source", "summary": "x", "install": "wheel", "releases": {version: {"source": "made up"}}}
            )
            listed.append({"name": name[:-1], "release": version})
        else:
            listed.append({"name": name, "version": version})
    stack = profile(components=listed, **changes)
    return select(catalog(profiles={"stack": stack}, components=known), "stack", Options(), Arch.AMD64)


def moves(
    pins: dict[str, str | None],
    data: Compatibility | None = None,
    lacking: Collection[tuple[str, str]] = (),
    pythons: tuple[str, ...] = ("3.11",),
    **changes: object,
) -> Solver:
    there = catalog(compatibility=data or table(*PAIRS))
    return upgrader(recipe(pins, **changes), there, pythons, lambda name, version: (name, version) not in lacking)


TORCH: dict[str, str | None] = {"torch": "2.8.0", "torch-npu": "2.8.0"}


def test_the_newest_row_of_the_target_takes_its_companions_along() -> None:
    assert moves(TORCH).newest("torch-npu") == {"torch-npu": "2.9.0.post1", "torch": "2.9.0"}
    # Asked the other way round, torch_npu goes to its nearest row for that torch; its own turn brings the newest.
    assert moves(TORCH).newest("torch") == {"torch": "2.9.0", "torch-npu": "2.9.0"}
    three = {**TORCH, "torchvision": "0.23.0"}
    assert moves(three).newest("torch") == {"torch": "2.9.0", "torch-npu": "2.9.0", "torchvision": "0.24.0"}
    assert moves(three).newest("torchvision") == moves(three).newest("torch")


def test_a_companion_that_fits_stays_and_one_that_is_not_pinned_is_not_asked() -> None:
    pins: dict[str, str | None] = {"torch": "2.9.0", "torch-npu": "2.9.0"}
    assert moves(pins).newest("torch-npu") == {"torch-npu": "2.9.0.post1"}
    assert moves({"torch": None, "torch-npu": "2.8.0"}).newest("torch-npu") == {"torch-npu": "2.9.0.post1"}


def test_nothing_newer_is_nothing_to_change() -> None:
    assert moves({"torch": "2.9.0", "torch-npu": "2.9.0.post1"}).newest("torch-npu") == {}
    # A release that no row has, newer than all of them: rows below it are no upgrade.
    assert moves({"torch": "2.13.0", "torch-npu": "2.13.0"}).newest("torch-npu") == {}


def test_a_release_that_no_index_has_is_passed_over() -> None:
    assert moves(TORCH, lacking={("torch-npu", "2.9.0.post1")}).newest("torch-npu") == {
        "torch-npu": "2.9.0",
        "torch": "2.9.0",
    }
    assert moves(TORCH, lacking={("torch", "2.9.0")}).newest("torch-npu") == {}


def test_a_pre_release_is_taken_from_a_pre_release_only() -> None:
    pins: dict[str, str | None] = {"torch": "2.9.0", "torch-npu": "2.9.0rc1"}
    assert moves(pins).newest("torch-npu")["torch-npu"] == "2.9.1rc1"


def test_every_python_of_the_profile_has_to_fit() -> None:
    data = table(npu("2.9.0", "2.9.0", python=">=3.11"), npu("2.8.0", "2.8.0"))
    assert moves(TORCH, data).newest("torch-npu")["torch-npu"] == "2.9.0"
    assert moves(TORCH, data, pythons=("3.11", "3.10")).newest("torch-npu") == {}


def test_a_source_stays_where_it_is_and_has_a_say() -> None:
    data = table(*PAIRS, ("plugin==1.0", {"torch-npu": "2.8.0", "torch": "2.8.0"}))
    pinned = {**TORCH, "plugin!": "1.0"}
    assert moves(pinned, data).newest("torch-npu") == {}
    assert moves(pinned, data).exactly("torch-npu", "2.9.0") is None


def test_a_row_for_another_cann_is_not_taken() -> None:
    assert moves(TORCH).exactly("torch-npu", "2.10.0") is None


def test_what_the_profile_overrides_does_not_move() -> None:
    override = [{"requirement": "torch==2.8.0", "reason": "the stack holds it there"}]
    found = moves(TORCH, overrides=override)
    assert found.movable == {"torch-npu"}
    # torch_npu extends that very torch, so no reason makes a newer one work beside it.
    assert found.newest("torch-npu") == {}
    others = table(npu("2.8.0", "2.8.0"), ("plugin==1.0", {"torch-npu": "2.8.0"}), ("plugin==2.0", {"torch-npu": "9"}))
    free = moves(
        {"torch-npu": "2.8.0", "plugin": "1.0"}, others, overrides=[{**override[0], "requirement": "torch-npu==2.8.0"}]
    )
    assert free.newest("plugin") == {"plugin": "2.0"}


def test_rows_of_one_source_are_sets_to_choose_from() -> None:
    data = table(npu("2.9.0", "2.9.0", "8.3.rc1"), npu("2.9.0", "2.9.0"), npu("2.8.0", "2.8.0"))
    assert moves(TORCH, data).newest("torch-npu") == {"torch-npu": "2.9.0", "torch": "2.9.0"}


def test_the_weightiest_source_decides_and_any_may_name_the_cann() -> None:
    ranks = {"meta": "metadata", "t": "table"}
    rows = (
        ("torch-npu==2.9.0 of t", {"torch": "2.8.0", "cann": CANN}),
        ("torch-npu==2.9.0 of meta", {"torch": "2.9.0"}),
        ("torch-npu==2.8.0 of t", {"torch": "2.8.0", "cann": CANN}),
    )
    moved = moves(TORCH, table(*rows, ranks=ranks), lacking={("torch", "2.8.1")}).newest("torch-npu")
    assert moved == {"torch-npu": "2.9.0", "torch": "2.9.0"}


def test_nothing_moves_to_a_release_that_a_row_only_names_but_by_name() -> None:
    bare = table(*PAIRS, npu("2.9.2", "2.9.2"), ("torch==2.9.0", {"python": ">=3.10,<3.13"}))
    assert moves(TORCH, bare).newest("torch-npu") == {"torch-npu": "2.9.0.post1", "torch": "2.9.0"}
    assert moves(TORCH, bare).exactly("torch-npu", "2.9.2") == {"torch-npu": "2.9.2", "torch": "2.9.2"}
    # What a row has, or nothing names, is judged as ever: torch 2.9.0 is not for this Python, and 2.9.5 is nowhere.
    assert moves(TORCH, bare).exactly("torch-npu", "2.9.0") == {"torch-npu": "2.9.0", "torch": "2.9.0"}
    assert moves(TORCH, bare, pythons=("3.14",)).exactly("torch-npu", "2.9.0") is None
    assert moves(TORCH, bare).exactly("torch-npu", "2.9.5") is None


def test_an_exact_version_may_be_older() -> None:
    assert moves(TORCH).exactly("torch-npu", "2.7.1") == {"torch-npu": "2.7.1", "torch": "2.7.1"}
    assert moves(TORCH).exactly("torch-npu", "2.8.0") == {}
    assert moves(TORCH).exactly("torch-npu", "2.6.6") is None


def test_all_pins_move_together_each_once() -> None:
    found = {**TORCH, "tool": "1.0"}
    assert newest_pins(moves(found)) == {"torch": "2.9.0", "torch-npu": "2.9.0.post1"}, "the table has no tool"
    assert newest_pins(moves(found, table(npu("2.8.0", "2.8.0")))) == {}
