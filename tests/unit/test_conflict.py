"""What a failed resolution comes down to, in the profile's words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import factories
import pytest

from cannery.explain.conflict import Conflict, find_conflict, headline, is_written, movable, told
from cannery.explain.derivation import parse_reasons
from cannery.explain.profile_items import ItemKind, profile_items
from cannery.lock.lock import KnownRelease, LockRequest
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options
from cannery.vocab import Arch

TEXTS = Path(__file__).parent / "data/uv_reasons"
REQUEST = LockRequest("q", "3.11", Arch.AMD64, (), (), (), (), "2026-06-01", (), ())


def conflict(name: str, **request: tuple[object, ...]) -> Conflict:
    items = profile_items(dataclasses.replace(REQUEST, **request), None)
    found = find_conflict(parse_reasons((TEXTS / f"{name}.txt").read_text()), items)
    assert found is not None
    return found


def test_two_pins_that_exclude_each_other() -> None:
    found = conflict("pins", requirements=("transformers==4.57.0", "tokenizers==0.20.3"))
    assert headline(found) == "no set of versions works: no tokenizers fits all that ask for it"
    assert told(found) == (
        "tokenizers ==0.20.3 by requirement tokenizers==0.20.3",
        "tokenizers >=0.21,<=0.22 by requirement transformers==4.57.0",
    )
    assert movable(found) == (
        "one of these has to move: requirement tokenizers==0.20.3, requirement transformers==4.57.0"
    )


def test_the_chain_of_who_asks() -> None:
    found = conflict("chain", requirements=("trl", "tokenizers==0.20.3"))
    assert told(found)[1] == "tokenizers >=0.21 by trl → transformers"
    assert movable(found) == "this has to move: requirement tokenizers==0.20.3"


def test_a_constraint_is_named_as_one() -> None:
    found = conflict("constraint", requirements=("transformers==4.57.0",), constraints=("tokenizers<0.21",))
    assert told(found) == (
        "tokenizers <0.21 by constraint tokenizers<0.21",
        "tokenizers >=0.21,<=0.22 by requirement transformers==4.57.0",
    )


def test_an_override_stands_in_the_place_of_all_who_ask() -> None:
    found = conflict("override", requirements=("transformers==4.57.0",), overrides=("tokenizers==0.19",))
    assert told(found) == ("tokenizers ==0.19 by override tokenizers==0.19",)
    assert movable(found) == "this has to move: override tokenizers==0.19"
    assert headline(found) == "no set of versions works: there is no tokenizers 0.19"


def test_a_date_that_hides_what_is_asked_for_is_blamed_by_name() -> None:
    found = conflict("later", requirements=("dep==2.0",))
    assert movable(found) == (
        "one of these has to move: requirement dep==2.0, exclude_newer 2026-06-01, which hides dep 2.0 of 2026-07-01"
    )
    assert is_written(found)
    nobody = conflict("only", requirements=("dep",))
    assert movable(nobody) == "this has to move: exclude_newer 2026-06-01, which hides dep 2.0 of 2026-07-01"


def test_a_date_that_hides_all_releases_of_what_another_asks_for() -> None:
    found = conflict("none_in_time", requirements=("user",))
    assert (found.name, told(found)) == ("late", ("late >=1 by user",))
    assert movable(found) == "this has to move: exclude_newer_packages 2026-06-01, which hides late 1.1 of 2026-09-02"


def test_what_uv_concludes_of_two_packages_is_no_fact_of_one() -> None:
    found = conflict("both", requirements=("a", "b"))
    assert headline(found) == "no set of versions works: no dep fits all that ask for it"
    assert told(found) == ("dep >=2 or >=2.5 by a", "dep <2 or <1.5 by b")


def test_the_only_version_that_two_ranges_of_one_leave_is_missing() -> None:
    found = conflict("gap_of_one", requirements=("pc==1.0",), constraints=("pe<=1.5",))
    assert headline(found) == "no set of versions works: there is no pe 1.5"
    assert told(found) == ("pe >=1.5 or <=1.5 by requirement pc==1.0 → pd",)
    assert "constraint pe<=1.5, requirement pc==1.0, exclude_newer 2026-06-01" in movable(found)


def test_sources_that_ask_for_two_versions() -> None:
    sources = (KnownRelease("vllm", "0.11.0+empty", ()), KnownRelease("vllm-ascend", "0.11.0rc3", ()))
    found = conflict("sources", requirements=("vllm==0.11.0+empty", "vllm-ascend==0.11.0rc3"), sources=sources)
    assert told(found) == (
        "torch ==2.7.1 by source vllm-ascend==0.11.0rc3",
        "torch ==2.8.0 by source vllm==0.11.0+empty",
    )


@pytest.mark.parametrize(
    ("name", "package", "words"),
    [
        ("only", "dep", "there is only dep <=1.1"),
        ("requires_python", "newpy", "newpy require Python >=3.12"),
        ("yanked", "y", "y >=1.1 was yanked (reason: broken build)"),
        ("lists", "z", "there is no z 9"),
    ],
)
def test_what_is_wrong_with_one_package(name: str, package: str, words: str) -> None:
    found = conflict(name)
    assert (found.name, headline(found)) == (package, f"no set of versions works: {words}")


def test_a_package_that_nobody_has() -> None:
    found = conflict("unknown")
    assert (found.unknown, headline(found)) == (True, "no-such-thing was not found on any index")


def test_ranges_of_many_versions_of_one_asker_are_one_side() -> None:
    found = conflict("numbered", requirements=("three", "l==5.0"))
    assert told(found) == ("l ==5.0 by requirement l==5.0", "l ==1 or ==0 or ==2 by three → k")
    short = conflict("one_of", requirements=("verl==0.9.1", "protobuf==3.20.3"))
    assert told(short)[1] == ("protobuf >=5,<5.28.0 or >5.28.0,<5.29.0 or >5.29.0 by requirement verl==0.9.1 → wandb")


def test_reasons_that_are_not_understood_are_no_conflict() -> None:
    assert find_conflict((), ()) is None


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
