"""What is read out of uv's text, and what it comes down to. data/uv_reasons has texts of a real uv."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import factories
import pytest

from cannery.explain.conflict import (
    Ask,
    Conflict,
    ItemKind,
    Reasons,
    find_conflict,
    profile_items,
    read_reasons,
    sides_of,
    what_can_move,
    who_asks,
)
from cannery.lock.request import KnownRelease, LockRequest, lock_request
from cannery.recipe.recipe import Options
from cannery.vocab import Arch

TEXTS = Path(__file__).parent / "data/uv_reasons"
REQUEST = LockRequest("q", "3.11", Arch.AMD64, (), (), (), (), "2026-06-01", (), ())


def reasons(name: str) -> Reasons:
    return read_reasons((TEXTS / f"{name}.txt").read_text())


def conflict(name: str, **request: tuple[object, ...]) -> Conflict:
    return find_conflict(reasons(name), profile_items(dataclasses.replace(REQUEST, **request), None))


PROTOBUF = (">=5,<5.28.0", ">5.28.0,<5.29.0", ">5.29.0")


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("pins", [("transformers", "tokenizers", ">=0.21,<=0.22")]),
        ("chain", [("transformers", "tokenizers", ">=0.21"), ("trl", "transformers")]),
        ("constraint", [("transformers", "tokenizers", ">=0.21,<=0.22")]),
        ("override", [("transformers", "tokenizers", "==0.19")]),
        ("pair", [("torch-npu", "torch", "==2.7.1")]),
        ("sources", [("vllm-ascend", "torch", "==2.7.1"), ("vllm", "torch", "==2.8.0")]),
        ("marker", [("opencv", "numpy", ">=2")]),
        ("two_bounds", []),
        ("no_release", []),
        ("later", []),
        ("only", []),
        ("none_in_time", [("user", "late", ">=1")]),
        ("unknown", [("user2", "no-such-thing")]),
        ("yanked", [("w", "y", ">=1.1")]),
        ("other_arch", []),
        ("other_arch_of_a_dependency", [("user", "armonly")]),
        ("other_python", []),
        ("requested_python", []),
        ("requires_python", [("np-user", "newpy")]),
        ("one_of", [("wandb", "protobuf", *PROTOBUF), ("verl", "wandb", ">=0.30")]),
        ("gap_of_one", [("pd", "pe", ">=1.5"), ("pd", "pe", "<=1.5"), ("pc", "pd", ">=3.0")]),
        ("lists", [("many", "z", "==9"), ("many", "y", "==42.0")]),
        (
            "numbered",
            [
                ("k", "l", "==1"),
                ("three", "k", "==1"),
                ("three", "k", "==0"),
                ("k", "l", "==0"),
                ("k", "l", "==2"),
                ("three", "k", "==2"),
            ],
        ),
        (
            "gaps",
            [
                ("k", "l", "==0"),
                ("three", "k", "==0"),
                ("three", "k", "==1"),
                ("three", "k", "<1", ">1"),
                ("three", "k", "==2"),
            ],
        ),
        (
            "both",
            [("a", "dep", ">=2"), ("b", "dep", "<2"), ("b", "dep", "<1.5"), ("a", "dep", ">=2.5")],
        ),
    ],
)
def test_who_depends_on_what(name: str, asks: list[tuple[str, ...]]) -> None:
    assert reasons(name).asks == tuple(Ask(by, what, tuple(ranges)) for by, what, *ranges in asks)


def test_every_text_is_read() -> None:
    assert {path.stem for path in TEXTS.glob("*.txt") if not reasons(path.stem).names} == set()
    assert read_reasons("something else\n  cause: no idea") == Reasons((), ())


def test_two_pins_that_exclude_each_other() -> None:
    found = conflict("pins", requirements=("transformers==4.57.0", "tokenizers==0.20.3"))
    assert found.name == "tokenizers"
    assert who_asks(found) == (
        "tokenizers ==0.20.3 by requirement tokenizers==0.20.3",
        "tokenizers >=0.21,<=0.22 by requirement transformers==4.57.0",
    )
    (line,) = what_can_move(found, "images/profiles/q.yaml")
    movers = "requirement tokenizers==0.20.3, requirement transformers==4.57.0"
    assert line == f"one of these has to change: {movers} (images/profiles/q.yaml)"


def test_the_chain_of_who_asks() -> None:
    found = conflict("chain", requirements=("trl", "tokenizers==0.20.3"))
    assert who_asks(found)[1] == "tokenizers >=0.21 by trl → transformers"
    assert what_can_move(found) == ("this has to change: requirement tokenizers==0.20.3",)


def test_a_constraint_is_named_as_one() -> None:
    found = conflict("constraint", requirements=("transformers==4.57.0",), constraints=("tokenizers<0.21",))
    assert who_asks(found)[0] == "tokenizers <0.21 by constraint tokenizers<0.21"


def test_an_override_takes_the_place_of_all_who_ask() -> None:
    items = profile_items(dataclasses.replace(REQUEST, overrides=("tokenizers==0.19",)), None)
    (side,) = sides_of("tokenizers", reasons("override").asks, items)
    assert (side.by, side.wanted) == ("override tokenizers==0.19", ("==0.19",))


def test_of_all_versions_of_two_packages_the_sides_are_told_apart() -> None:
    found = conflict("both", requirements=("a", "b"))
    assert who_asks(found) == ("dep >=2 or >=2.5 by a", "dep <2 or <1.5 by b")


def test_sources_that_ask_for_two_versions() -> None:
    sources = (KnownRelease("vllm", "0.11.0+empty", ()), KnownRelease("vllm-ascend", "0.11.0rc3", ()))
    found = conflict("sources", requirements=("vllm==0.11.0+empty", "vllm-ascend==0.11.0rc3"), sources=sources)
    assert who_asks(found) == (
        "torch ==2.7.1 by source vllm-ascend==0.11.0rc3",
        "torch ==2.8.0 by source vllm==0.11.0+empty",
    )


def test_ranges_of_many_versions_of_one_asker_are_one_side() -> None:
    found = conflict("numbered", requirements=("three", "l==5.0"))
    assert who_asks(found) == ("l ==5.0 by requirement l==5.0", "l ==1 or ==0 or ==2 by three → k")
    short = conflict("one_of", requirements=("verl==0.9.1", "protobuf==3.20.3"))
    assert who_asks(short)[1] == f"protobuf {' or '.join(PROTOBUF)} by requirement verl==0.9.1 → wandb"


def test_without_two_sides_that_exclude_each_other_all_that_is_named_may_move() -> None:
    found = conflict("gap_of_one", requirements=("pc==1.0", "other==1"), constraints=("pe<=1.5",))
    assert (found.name, found.sides) == ("", ())
    assert what_can_move(found) == ("one of these has to change: constraint pe<=1.5, requirement pc==1.0",)


def test_items_are_named_as_the_profile_writes_them() -> None:
    profile = factories.profile(
        constraints=[{"requirement": "ray>=2.50", "reason": "older ones differ"}],
        overrides=[{"requirement": "sympy==1.14", "reason": "as it was tried"}],
    )
    recipe = factories.recipe(Options(pins=("numpy==2.3.0",)), factories.catalog(profiles={"stack": profile}))
    recipe = dataclasses.replace(recipe, held=("torchvision==0.24.0",))
    items = profile_items(lock_request(recipe), recipe)
    assert [str(item) for item in items] == [
        "attrs",
        "numpy",
        "--pin numpy==2.3.0",
        "ray",
        "pin torch-npu 2.9.0",
        "pin torch 2.9.0",
        "constraint ray>=2.50",
        "bound from images/compatibility.yaml torchvision==0.24.0",
        "override sympy==1.14",
    ]
    kinds = {item.name: item.kind for item in items}
    assert (kinds["attrs"], kinds["torch"]) == (ItemKind.BASE, ItemKind.PIN)
