"""What the field asked in November 2026, each with the right answer by the real table: no lock is read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cannery.catalog.catalog import Catalog, Profile
from cannery.catalog.io.read import load_catalog
from cannery.compat.rules import check_recipe
from cannery.compat.subject import errors
from cannery.errors import UsageError
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options, Recipe
from cannery.recipe.select import select
from cannery.vocab import Arch

IMAGES = Path(__file__).parents[2] / "images"
REAL = load_catalog(IMAGES)


def with_profile(text: str) -> Catalog:
    return replace(REAL, profiles={**REAL.profiles, "mine": Profile.model_validate(yaml.safe_load(text))})


def bound(profile: str, catalog: Catalog = REAL, **options: object) -> Recipe:
    locked = ("vllm", "torch", "torchvision", "transformers")
    return select(catalog, profile, Options(**options), Arch.ARM64, locked)  # type: ignore[arg-type]


def answers(recipe: Recipe, code: str = "", catalog: Catalog = REAL) -> list[str]:
    found = check_recipe(recipe, catalog)
    return [f"{f.severity}: {f.what} | {f.why} | {f.fix}" for f in found if f.code == (code or f.code)]


# 02: CANN 9.1.0 is known, and so is a profile for it

STACK_9 = """\
summary: made up
target: {cann: "9.1.0", chip: 910b, os: ubuntu22.04, python: "3.12", arch: [arm64]}
exclude_newer: "2026-09-30"
components:
  - {name: pip}
  - {name: torch, version: "2.10.0"}
  - {name: torchvision, version: "0.25.0"}
  - {name: torch-npu, version: "2.10.0.post4"}
  - {name: triton-ascend, version: "3.2.1"}
  - {name: transformers, version: "4.57.6"}
"""


def test_a_line_that_is_new_is_known_and_a_compatible_one_is_a_note() -> None:
    assert not errors(check_recipe(bound("quickstart", cann="9.1.0"), REAL))
    (note,) = answers(bound("quickstart", cann="9.1.0"), "fit-compatible")
    assert note.startswith("note: torch-npu 2.13.0 is made for CANN 9.2.0; its makers list 9.1.0 as compatible")


def test_a_profile_for_cann_9_1_is_judged_by_rows() -> None:
    catalog = with_profile(STACK_9)
    recipe = bound("mine", catalog)
    assert recipe.base.tag_name == "9.1.0-910b-ubuntu22.04-py3.12"
    assert not errors(check_recipe(recipe, catalog))
    (cann,) = answers(recipe, "fit-cann", catalog)
    assert "triton-ascend 3.2.1 is made for CANN" in cann
    assert "| use triton-ascend 3.2.2" in cann  # not an older CANN


@pytest.mark.parametrize(
    ("release", "wrong", "way"),
    [
        ("0.23.0rc1", "made for torch-npu 2.10.0.post2", "triton-ascend 3.2.2 and vllm 0.23.0 with vllm-ascend 0.23.0"),
        (
            "0.18.0rc1",
            "made for torch 2.9.0, torch-npu 2.9.0, triton-ascend 3.2.0 and vllm 0.18.0",
            "with vllm-ascend 0.23.0",
        ),
        ("0.23.0", "", ""),
    ],
)
def test_a_release_in_a_profile_that_no_component_knows_is_judged_by_row(release: str, wrong: str, way: str) -> None:
    vllm = f'  - {{name: vllm, release: "0.23.0"}}\n  - {{name: vllm-ascend, release: {release}}}\n'
    catalog = with_profile(STACK_9.replace('"3.2.1"', '"3.2.2"').replace("4.57.6", "5.5.4") + vllm)
    recipe = bound("mine", catalog)
    found = answers(recipe, "fit", catalog)
    assert len(found) == bool(wrong)
    for text in found:
        assert wrong in text
        assert way in text
    (unknown,) = answers(recipe, "release-unknown", catalog)
    assert f"vllm-ascend {release}" in unknown
    with pytest.raises(UsageError, match=f"the requirements of vllm-ascend {release} are not known"):
        lock_request(recipe)


def test_the_profile_of_case_02_as_it_was_written_names_what_fits_its_plugin() -> None:
    vllm = '  - {name: vllm, release: "0.23.0"}\n  - {name: vllm-ascend, release: "0.23.0rc1"}\n'
    catalog = with_profile(STACK_9 + vllm)
    (found,) = answers(bound("mine", catalog), "fit", catalog)
    assert "error: torch-npu 2.10.0.post4 and vllm-ascend 0.23.0rc1 do not fit" in found
    nearest = found.partition("use ")[2].partition(", or ")[0]
    assert nearest.endswith("triton-ascend 3.2.1 and vllm 0.23.0 with vllm-ascend 0.23.0rc1 on CANN 9.0.1")
    (unknown,) = answers(bound("mine", catalog), "release-unknown", catalog)
    assert "`build.py facts vllm-ascend==0.23.0rc1`" in unknown


def test_the_nearest_fix_stays_on_a_line_that_has_images() -> None:
    (fix,) = [
        text
        for text in answers(bound("verl-qwen3.5", pins=("torch-npu==2.10.0.post4",)), "fit")
        if "vllm-ascend 0.13.0 is made for" in text
    ]
    ways = fix.rpartition("use ")[2].split(", or ")
    assert ways[0].startswith("torch 2.8.0, torch-npu 2.8.0.post2")  # one move
    assert ways[1].endswith("vllm-ascend 0.23.0.post1 on CANN 9.1.0")  # a final release before candidates
    assert "9.2.0" not in fix


@pytest.mark.parametrize("word", ["950", "a5", "Ascend950PR"])
@pytest.mark.parametrize("cann", ["9.0.0", "9.0.1", "9.1.0"])
def test_an_image_for_the_950_exists_from_cann_9_on(word: str, cann: str) -> None:
    assert bound("quickstart", chip=word, cann=cann, base="cann").base.tag_name == f"{cann}-950-ubuntu22.04-py3.11"
    assert answers(bound("quickstart", chip=word, cann=cann, base="cann"), "base-tag") == []
    (none,) = answers(bound("verl-qwen3.5", chip=word), "base-tag")  # 8.5.0 has none
    assert "9.0.0-950-ubuntu22.04-py3.11" in none


@pytest.mark.parametrize(
    ("image", "named", "fix"),
    [
        (
            "quay.io/ascend/cann:9.1.0-910b-ubuntu22.04-py3.12-devel",
            "cann 9.1.0 (target: 8.5.0), python 3.12 (target: 3.11)",
            "CANN=9.1.0 PYTHON=3.12",
        ),
        (
            "me/cann:8.3.rc1-a3-openeuler24.03-py3.11",
            "cann 8.3.rc1 (target: 8.5.0), chip a3 (target: 910b), os openeuler24.03 (target: ubuntu22.04)",
            "CANN=8.3.rc1 CHIP=a3 OS=openeuler24.03",
        ),
        ("me/x:8.5.0-950dt-ubuntu22.04-py3.11", "chip 950 (target: 910b)", "CHIP=950"),
    ],
)
def test_a_base_of_another_target_is_reported_by_its_tag(image: str, named: str, fix: str) -> None:
    assert answers(bound("verl-qwen3.5", base=image), "base.tag") == [
        f"warning: the tag of {image} names {named} | checks and locks are the target's | {fix}"
    ]


@pytest.mark.parametrize("image", ["me/x:8.5.0-910b-ubuntu22.04-py3.11-mine", "me/x:latest", "me/x:v1"])
def test_the_tag_of_the_target_or_of_nothing_has_no_finding(image: str) -> None:
    assert answers(bound("verl-qwen3.5", base=image, cann="8.5.0.B160"), "base.tag") == []


# 03: does vllm X fit vllm-ascend Y?


def test_two_releases_that_no_component_knows_are_judged_by_their_rows() -> None:
    pair = ("vllm==0.18.0", "vllm-ascend==0.18.0rc1")
    whole = (*pair, "torch==2.9.0", "torch-npu==2.9.0", "torchvision==0.24.0")
    recipe = bound("verl-qwen3.5", pins=whole, cann="8.5.1")
    assert not errors(check_recipe(recipe, REAL))
    rows = "\n".join(answers(recipe, "row"))
    assert "vllm-ascend 0.18.0rc1 is made for vllm 0.18.0, torch 2.9.0, torch-npu 2.9.0, CANN 8.5.1" in rows
    assert "vllm-ascend versioning policy, 2026-08-20" in rows
    assert len(answers(recipe, "release-unknown")) == 1  # of vllm-ascend
    # The same pair beside the profile's torch: what does not fit, and the whole set that does
    (wrong,) = answers(bound("verl-qwen3.5", pins=pair), "fit")
    assert "vllm-ascend 0.18.0rc1 is made for torch 2.9.0 and torch-npu 2.9.0" in wrong
    assert "vllm 0.18.0 and torchvision 0.24.0 with vllm-ascend 0.18.0rc1 on CANN 8.5.1" in wrong


@pytest.mark.parametrize(
    ("pins", "wrong"),
    [
        (("vllm==0.20.2",), "vllm-ascend 0.13.0 is made for vllm 0.13.0"),
        (("vllm==0.11.0", "vllm-ascend==0.11.0rc3"), "0.11.0rc3 is made for torch 2.7.1 and torch-npu 2.7.1"),
        (("vllm-ascend==0.14.0rc1",), "0.14.0rc1 is made for torch 2.9.0, torch-npu 2.9.0 and vllm 0.14.1"),
        (("vllm==0.33.0", "vllm-ascend==0.30.0rc2"), "0.30.0rc2 is made for torch 2.10.0, torch-npu 2.10.0.post4"),
    ],
)
def test_a_pair_that_does_not_fit_is_one_error_with_the_row(pins: tuple[str, ...], wrong: str) -> None:
    found = answers(bound("verl-qwen3.5", pins=pins), "fit")
    assert len(found) == 1
    assert found[0].startswith("error: ")
    assert wrong in found[0]


def test_a_release_in_no_row_and_no_component_is_a_warning() -> None:
    (found,) = answers(bound("verl-sglang", pins=("sglang==0.5.9",)), "release-unknown")
    assert found.startswith("warning: neither a component nor a row of the table has sglang 0.5.9")


def test_what_no_component_knows_is_not_locked() -> None:
    with pytest.raises(UsageError, match=r"the requirements of vllm-ascend 0\.18\.0rc1 are not known") as caught:
        lock_request(bound("verl-qwen3.5", pins=("vllm-ascend==0.18.0rc1",)))
    assert "`build.py facts vllm-ascend==0.18.0rc1` adds it to images/components/" in (caught.value.hint or "")


# 05: MindSpeed, Megatron-LM and MindSpeed-LLM

MEGATRON = {"0.8.0": "baf94af3c667248865f23df73b9fb8e2395e6fd0", "0.12.1": "a845aa7e12b3a117e24c2352b9e3e60bad2e3a17"}
MINDSPEED = {"0.8.0": "0dfa0035ec54d9a74b2f6ee2867367df897299df", "0.12.1": "1cdd0abd75e40936ad31721c092f57c695dd72c4"}
APEX = "  - {name: apex, commit: 4ef930c1c884fdca5f472ab2ce7cb9b505d26c1a}\n"
LLM = APEX + "  - {name: mindspeed-llm, commit: 421ef7bcb83fb31844a1efb688cde71705c0526e}\n"


def megatron(core: str, mindspeed: str, more: str = "") -> tuple[Recipe, Catalog]:
    catalog = with_profile(f"""\
summary: made up
target: {{cann: "8.5.0", chip: 910b, os: ubuntu22.04, python: "3.11", arch: [arm64]}}
exclude_newer: "2026-06-05"
components:
  - {{name: pip}}
  - {{name: torch, version: "2.7.1"}}
  - {{name: torch-npu, version: "2.7.1.post2"}}
  - {{name: megatron-lm, commit: {MEGATRON[core]}}}
  - {{name: mindspeed, commit: {MINDSPEED[mindspeed]}}}
{more}""")
    return bound("mine", catalog), catalog


@pytest.mark.parametrize(("core", "mindspeed"), [("0.8.0", "0.12.1"), ("0.12.1", "0.8.0")])
def test_a_mindspeed_for_another_core_is_an_error_with_the_commits_that_fit(core: str, mindspeed: str) -> None:
    recipe, catalog = megatron(core, mindspeed)
    (found,) = answers(recipe, "fit", catalog)
    assert f"error: megatron-core {core} and mindspeed {mindspeed} do not fit" in found
    assert f"mindspeed {core} (commit {MINDSPEED[core]})" in found


def test_a_mindspeed_llm_is_for_one_mindspeed() -> None:
    recipe, catalog = megatron("0.12.1", "0.12.1", LLM)
    (found,) = answers(recipe, "fit", catalog)
    assert "mindspeed-llm 0.0.0.dev20250326 is made for mindspeed 0.8.0 and megatron-core 0.8.0" in found
    assert MINDSPEED["0.8.0"] in found
    recipe, catalog = megatron("0.8.0", "0.8.0", LLM)
    assert answers(recipe, "fit", catalog) == []


def test_a_wheel_of_apex_is_what_a_mindspeed_llm_asks_for() -> None:
    """Its pin is 0.1, and the build of component apex-wheel is 0.1+ascend."""
    mine = '  - {name: apex-wheel, version: "0.1"}\n'
    recipe, catalog = megatron("0.8.0", "0.8.0", mine + LLM.removeprefix(APEX))
    assert answers(recipe, "requirement", catalog) == []
    other = '  - {name: apex-wheel, version: "0.2"}\n'
    recipe, catalog = megatron("0.8.0", "0.8.0", other + LLM.removeprefix(APEX))
    assert "asks for apex==0.1+ascend, the profile has apex 0.2" in answers(recipe, "requirement", catalog)[0]


def test_a_mindspeed_llm_without_apex_is_an_error_that_names_the_wheel() -> None:
    recipe, catalog = megatron("0.8.0", "0.8.0", LLM.removeprefix(APEX))
    (found,) = answers(recipe, "requirement", catalog)
    assert found.startswith("error: mindspeed-llm 0.0.0.dev20250326 asks for apex==0.1+ascend, which is not in the set")
    assert "take component apex or apex-wheel into images/profiles/mine.yaml" in found
    assert "(apex-0.1+ascend-*.whl for Python 3.11 on arm64)" in found


# Every offer is a set that `check` takes

OFFERED = re.compile(r"([\w.-]+) (\d[\w.+]*)(?: \(commit \w+\))?")
PLACE = re.compile(r" on CANN (?P<cann>[\w.]+)")
LEFT = """\
summary: torch 2.8.0 left beside torch-npu 2.10.0
target: {cann: "8.5.0", chip: 910b, os: ubuntu22.04, python: "3.11", arch: [arm64]}
exclude_newer: "2026-06-18"
components: [{name: torch, version: "2.8.0"}, {name: torch-npu, version: "2.10.0"}, {name: pip}]
"""


def refused(profile: str, catalog: Catalog, *pins: str) -> list[str]:
    """Check every set that the findings of a set offer; return the offers, and assert that none of them is refused."""
    recipe = bound(profile, catalog, pins=pins)
    ways = []
    for finding in check_recipe(recipe, catalog):
        if finding.code == "fit" and finding.fix.startswith("use "):
            text, _, pinned = finding.fix.removeprefix("use ").partition(": ")
            text = text.removesuffix("; for the first")
            ways += text.split(", or ")
            if pinned:
                options = pinned.split("`")[1]
                offered = bound(profile, catalog, pins=tuple(options.replace("--pin ", "").split()))
                assert errors(check_recipe(offered, catalog)) == (), pinned
    for way in ways:
        place = PLACE.search(way)
        moved = dict(pin.split("==") for pin in pins) | dict(OFFERED.findall(way.partition(" on ")[0]))
        options = {"cann": place["cann"]} if place else {}
        options |= {"python": "3.11"} if "Python" in way else {}
        offered = bound(profile, catalog, pins=tuple(f"{name}=={text}" for name, text in moved.items()), **options)
        assert errors(check_recipe(offered, catalog)) == (), way
    return ways


@pytest.mark.parametrize(
    ("profile", "pins", "count"),
    [
        ("verl-qwen3.5", ("torch-npu==2.10.0.post4",), 5),
        ("verl-qwen3.5", ("vllm==0.20.2",), 2),
        ("verl-qwen3.5", ("vllm==0.11.0", "vllm-ascend==0.11.0rc3"), 1),
        ("verl-qwen3.5", ("vllm-ascend==0.14.0rc1",), 2),
        ("verl-qwen3.5", ("vllm==0.18.0", "vllm-ascend==0.18.0rc1"), 2),
        ("verl-vllm", ("torch==2.9.0",), 4),
        ("verl-npu", ("vllm==0.13.0",), 1),
        ("mindspeed-rl", ("torch-npu==2.7.1",), 4),
        ("verl-qwen3.5-cann9", ("vllm-ascend==0.23.0",), 2),
        ("quickstart", ("torch-npu==2.14.0",), 2),
    ],
)
def test_no_offer_is_refused_by_check_itself(profile: str, pins: tuple[str, ...], count: int) -> None:
    assert len(refused(profile, REAL, *pins)) >= count


def test_a_cann_that_the_makers_call_compatible_is_offered_before_releases_for_another_torch() -> None:
    near = ["torch 2.14.0 with torch-npu 2.14.0", "torch 2.13.0 with torch-npu 2.13.0"]
    assert refused("quickstart", REAL, "torch-npu==2.14.0") == near
    assert "torch 2.13.0 with torch-npu 2.13.0" in refused("quickstart", REAL, "torch==2.9.0")


def test_no_offer_for_the_profiles_of_cases_05_and_10_is_refused() -> None:
    assert len(refused("mine", with_profile(LEFT))) == 2
    _, catalog = megatron("0.8.0", "0.12.1", LLM)
    assert len(refused("mine", catalog)) == 3


# 13: a release in no row, on a real base


@pytest.mark.parametrize("base", ["cann", "8.5.0-910b-ubuntu22.04-py3.11"])
def test_a_release_in_no_row_is_a_warning_on_a_real_base_and_a_note_on_a_stand_in(base: str) -> None:
    pins = ("torch-npu==2.13.0.post9",)
    (real,) = answers(bound("quickstart", base=base, pins=pins), "fit-unknown")
    assert real.startswith("warning: no row of the table has torch-npu 2.13.0.post9: whether it fits CANN 8.5.0")
    (standin,) = answers(bound("quickstart", pins=pins), "fit-unknown")
    assert standin.startswith("note: ")


# Chips


@pytest.mark.parametrize(("chip", "fits"), [("310p", False), ("910", False), ("a3", True), ("910b", True)])
def test_triton_ascend_is_for_a2_a3_and_the_950(chip: str, *, fits: bool) -> None:
    found = answers(bound("verl-qwen3.5", chip=chip), "chip")
    assert found == [] if fits else found[0].startswith(f"error: triton-ascend does not work on chip {chip}: it is for")
