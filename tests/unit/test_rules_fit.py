"""The rule over the table, on rows as the field has them: a plugin's, several sources, alternatives, drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from factories import base_line, catalog, profile, subject

from cannery.catalog.compatibility import Compatibility
from cannery.compat.rules.fit import fits
from cannery.compat.rules.target import driver
from cannery.compat.solve import NO_SET
from cannery.compat.subject import Finding, holds, in_order, listed
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cannery.catalog.catalog import Catalog
    from cannery.compat.subject import Subject

    Rule = Callable[[Subject], Iterator[Finding]]

SOURCES = {
    "own": {"what": "the package's METADATA", "rank": "metadata", "date": "2026-01-01"},
    "makers": {"what": "the makers' table", "rank": "table", "date": "2026-01-02"},
    "others": {"what": "another table", "rank": "table", "date": "2026-01-03"},
    "image": {"what": "an image in use", "rank": "document", "date": "2026-01-04"},
    "cuda": {"what": "another build", "rank": "build", "date": "2026-01-05"},
}
ROWS: list[tuple[str, dict[str, str], str]] = [
    ("torch-npu==2.8.0", {"torch": "2.8.0", "cann": "8.3.rc1"}, "makers"),
    ("torch-npu==2.7.1", {"torch": "2.7.1", "cann": "8.3.rc1"}, "makers"),
    ("torch-npu==2.9.0", {"torch": "2.9.0", "cann": "8.5.0"}, "makers"),
    ("torchvision==0.23.0", {"torch": "2.8.0"}, "makers"),
    ("torchvision==0.22.1", {"torch": "2.7.1"}, "makers"),
    ("plugin==0.11.0rc1", {"engine": "0.11.0", "torch": "2.7.1", "torch-npu": "2.7.1", "cann": "8.3.rc1"}, "others"),
    ("plugin==0.12.0rc1", {"engine": "0.12.0", "torch": "2.8.0", "torch-npu": "2.8.0", "cann": "8.3.rc1"}, "others"),
    ("plugin==0.13.0rc1", {"engine": "0.13.0", "torch": "2.8.0", "torch-npu": "2.8.0", "cann": "8.3.rc1"}, "others"),
    ("plugin==0.14.0rc1", {"engine": "0.14.1"}, "others"),
]
Pins = dict[str, str]
PAIR: Pins = {"torch-npu": "2.7.1", "plugin": "1.0"}
Rows = list[tuple[str, dict[str, str], str]]


def data(rows: Rows) -> Catalog:
    made = [{"of": of, "fits": fits_, "source": source} for of, fits_, source in rows]
    both = {"of": "torch-npu", "cann": ["8.5", "9.1"], "but": "new operators do not", "source": "makers"}
    value = {"sources": SOURCES, "rows": made, "compatible": [both]}
    return catalog(compatibility=Compatibility.model_validate(value))


def judge(
    rule: Rule, rows: Rows, pins: Pins, cann: str = "8.3.rc1", trial: tuple[str, ...] = (), **changes: object
) -> tuple[Finding, ...]:
    """What a rule says, in order, of a set of exactly these pins, all of them wheels; `trial` are pins by hand."""
    found = data(rows)
    wheel = found.components["ray"].model_copy(update={"extras": ()})
    known = {**dict.fromkeys(pins, wheel), "torch": found.components["torch"]}
    components = [{"name": name, "version": version} for name, version in pins.items()]
    bases = {**found.bases, cann: base_line(cann)}
    value = {
        **vars(found),
        "bases": bases,
        "components": known,
        "profiles": {"set": profile(components=components, **changes)},
    }
    bound = catalog(**value)
    return in_order(rule(subject(select(bound, "set", Options(cann=cann, pins=trial), Arch.AMD64), bound)))


def test_a_set_of_the_table_has_no_finding() -> None:
    pins = {"torch": "2.7.1", "torch-npu": "2.7.1", "torchvision": "0.22.1", "plugin": "0.11.0rc1", "engine": "0.11.0"}
    assert judge(fits, ROWS, pins) == ()


def test_a_plugin_for_another_pair_names_all_and_both_ways_out() -> None:
    """V03 (vllm-project/vllm-ascend issue 7587)."""
    (finding,) = judge(fits, ROWS, {"torch": "2.8.0", "torch-npu": "2.8.0", "plugin": "0.11.0rc1", "engine": "0.11.0"})
    assert finding == Finding(
        Severity.ERROR,
        "fit",
        "torch 2.8.0, torch-npu 2.8.0 and plugin 0.11.0rc1 do not fit: "
        "plugin 0.11.0rc1 is made for torch 2.7.1 and torch-npu 2.7.1",
        "another table, 2026-01-03",
        "use engine 0.11.0, torch 2.7.1 and torch-npu 2.7.1 with plugin 0.11.0rc1, "
        "or engine 0.12.0, torch 2.8.0 and torch-npu 2.8.0 with plugin 0.12.0rc1, "
        "or engine 0.13.0, torch 2.8.0 and torch-npu 2.8.0 with plugin 0.13.0rc1",
    )


def test_what_another_build_asks_for_gives_way_to_the_plugins_row() -> None:
    """vllm's CUDA build names its torch; target `empty` runs on the one that vllm-ascend's row has."""
    rows = [*ROWS, ("engine==0.12.0", {"torch": "2.9.0"}, "cuda")]
    pins = {"torch": "2.8.0", "torch-npu": "2.8.0", "plugin": "0.12.0rc1", "engine": "0.12.0"}
    assert judge(fits, rows, pins) == ()
    # Its makers' own word is not so weak, and without a plugin nothing speaks for this torch
    (finding,) = judge(fits, [*ROWS, ("engine==0.12.0", {"torch": "2.9.0"}, "own")], pins)
    assert (finding.severity, finding.code) == (Severity.WARNING, "fit-disagree")
    (finding,) = judge(fits, rows, {"torch": "2.8.0", "engine": "0.12.0"})
    assert (finding.severity, finding.code) == (Severity.ERROR, "fit")


@pytest.mark.parametrize(
    ("cann", "found"),
    [
        ("8.5.0", []),  # the one that it is made for
        ("8.5.1", [(Severity.NOTE, "fit-compatible")]),
        ("9.1.0", [(Severity.NOTE, "fit-compatible")]),
        ("8.3.rc1", [(Severity.WARNING, "fit-cann")]),  # in no list of its makers
    ],
)
def test_a_cann_that_the_makers_call_compatible_is_a_note(cann: str, found: list[tuple[Severity, str]]) -> None:
    judged = judge(fits, ROWS, {"torch": "2.9.0", "torch-npu": "2.9.0"}, cann)
    assert [(f.severity, f.code) for f in judged] == found
    if found and found[0][0] is Severity.NOTE:
        what = f"torch-npu 2.9.0 is made for CANN 8.5.0; its makers list {cann} as compatible, but new operators do not"
        assert (judged[0].what, judged[0].why) == (what, "the makers' table, 2026-01-02")


def test_one_row_that_is_made_for_the_cann_is_enough_beside_a_compatible_one() -> None:
    rows = [*ROWS, ("torch-npu==2.9.0", {"torch": "2.9.0", "cann": "9.1.0"}, "image")]
    assert judge(fits, rows, {"torch": "2.9.0", "torch-npu": "2.9.0"}, "9.1.0") == ()


def test_a_cann_without_an_image_is_never_offered() -> None:
    rows = [*ROWS, ("torch-npu==2.8.0.post9", {"torch": "2.8.0", "cann": "8.8.0"}, "makers")]
    rows = [row for row in rows if row[0] != "torch-npu==2.8.0"]
    (finding,) = [f for f in judge(fits, rows, {"torch": "2.8.0", "torch-npu": "2.7.1"}) if f.code == "fit"]
    assert "8.8.0" not in finding.fix
    assert "torch 2.7.1 with torch-npu 2.7.1" in finding.fix


def test_a_follower_of_torch_for_another_torch() -> None:
    """V04 (vllm-project/vllm-ascend issue 4081): torchvision 0.23.0 stays beside torch 2.7.1."""
    (finding,) = judge(fits, ROWS, {"torch": "2.7.1", "torch-npu": "2.7.1", "torchvision": "0.23.0"})
    assert finding.severity is Severity.ERROR
    assert finding.what == "torch 2.7.1 and torchvision 0.23.0 do not fit: torchvision 0.23.0 is made for torch 2.8.0"
    assert finding.fix == (
        "use torch 2.7.1 with torchvision 0.22.1, or torch 2.8.0 and torch-npu 2.8.0 with torchvision 0.23.0"
    )


def test_a_row_that_names_a_later_patch_of_the_engine() -> None:
    """V08 (Ascend/pytorch issue 105): the plugin's 0.14.0rc1 is made for 0.14.1, not for 0.14.0."""
    (finding,) = judge(fits, ROWS, {"plugin": "0.14.0rc1", "engine": "0.14.0"})
    assert finding.what.endswith("plugin 0.14.0rc1 is made for engine 0.14.1")


def test_an_overridden_misfit_is_left_to_the_override() -> None:
    override = {"requirement": "torch==2.8.0", "reason": "made up for this test"}
    pins = {"torch": "2.8.0", "torchvision": "0.22.1"}
    assert judge(fits, ROWS, pins, overrides=[override]) == ()
    assert [f.code for f in judge(fits, ROWS, pins)] == ["fit"]


def test_a_pin_by_hand_outside_an_override_is_offered_the_range_of_the_override() -> None:
    override = {"requirement": "torch>=2.8,<2.8.5", "reason": "made up for this test"}
    pins = {"torch": "2.8.0", "torchvision": "0.22.1"}
    (finding,) = judge(fits, ROWS, pins, trial=("torch==2.9.0",), overrides=[override])
    assert finding.code == "fit"
    assert finding.fix == "pin a version in torch>=2.8,<2.8.5, which the profile asks for (made up for this test)"


def test_the_pins_of_the_first_set_are_named_as_such_only_beside_others() -> None:
    pins = {"torch": "2.7.1", "torchvision": "0.22.1"}
    (two,) = judge(fits, ROWS, pins, trial=("torchvision==0.23.0",))
    (one,) = judge(fits, ROWS[3:4], pins, trial=("torchvision==0.23.0",))
    options = "`--pin torch==2.8.0 --pin torchvision==0.23.0`"
    assert (", or " in two.fix, "; for the first: `--pin " in two.fix) == (True, True)
    needs = "(needs torch 2.8.0 from index torch-cpu)"
    assert one.fix == f"use torch 2.8.0 with torchvision 0.23.0: {options} {needs}"


@pytest.mark.parametrize("torch", ["2.8.0+cpu", "2.8.0"])
@pytest.mark.parametrize("npu", ["2.8.0.post2.dev20251113", "2.9.0.post1+git4c901a4"])
def test_every_form_of_a_version_is_understood(torch: str, npu: str) -> None:
    (finding,) = judge(fits, ROWS, {"torch": torch, "torch-npu": npu})
    if npu.startswith("2.8"):
        assert (finding.severity, finding.code) == (Severity.WARNING, "fit-unknown")
        assert finding.fix.endswith("nearest there: 2.8.0 (CANN 8.3.rc1)")
    else:
        assert (finding.severity, finding.code) == (Severity.ERROR, "fit")
        assert finding.what == f"torch {torch} and torch-npu {npu} do not fit: the latter is made for torch 2.9.0"


def test_a_nightly_build_is_newer_than_the_release_before_it_and_local_parts_do_not_count() -> None:
    rows: Rows = [("torch-npu==2.8.0.post2.dev20251113", {"torch": "2.8.0"}, "makers")]
    assert judge(fits, rows, {"torch": "2.8.0+cpu", "torch-npu": "2.8.0.post2.dev20251113+git1"}) == ()


# Whole sets alone are offered


SET: Pins = {"torch": "2.7.1", "torch-npu": "2.7.1", "torchvision": "0.22.1"}
OTHER_PLUGINS = ("plugin==0.11.0rc1", "plugin==0.14.0rc1")


def test_what_an_offer_takes_along_is_said_with_it_so_that_every_row_holds() -> None:
    """The plugin's row has torch 2.8.0 and torch_npu 2.8.0; torchvision 0.22.1 would be left beside them."""
    rows: Rows = [row for row in ROWS if not row[0].startswith("plugin")]
    rows += [("plugin==2.0", {"torch": "2.8.0", "torch-npu": "2.8.0"}, "others")]
    (finding,) = judge(fits, rows, {**SET, "plugin": "2.0"})
    assert finding.fix == "use torch 2.8.0, torch-npu 2.8.0 and torchvision 0.23.0 with plugin 2.0"
    again = {"torch": "2.8.0", "torch-npu": "2.8.0", "torchvision": "0.23.0", "plugin": "2.0"}
    assert judge(fits, rows, again) == ()


def test_a_set_that_another_row_speaks_against_is_no_offer() -> None:
    """No torchvision is made for torch 2.8.0 here, so the plugin for it cannot be had beside torchvision."""
    rows: Rows = [row for row in ROWS if row[0] not in {"torchvision==0.23.0", *OTHER_PLUGINS}]
    pins = {**SET, "plugin": "0.12.0rc1", "engine": "0.12.0"}
    (finding,) = judge(fits, rows, pins)
    assert finding.what.startswith("torch 2.7.1, torch-npu 2.7.1 and plugin 0.12.0rc1 do not fit")
    assert finding.fix == NO_SET
    (without,) = judge(fits, rows, {name: version for name, version in pins.items() if name != "torchvision"})
    assert without.fix.startswith("use engine 0.12.0, torch 2.8.0 and torch-npu 2.8.0 with plugin 0.12.0rc1")


def test_an_offer_for_another_cann_is_none_where_the_rest_is_made_for_this_one() -> None:
    rows: Rows = [
        ("torch-npu==2.8.0", {"torch": "2.8.0", "cann": "8.5.0"}, "makers"),
        ("plugin==1.0", {"torch": "2.8.0", "cann": "8.3.rc1"}, "makers"),
    ]
    (alone,) = judge(fits, rows, {"torch": "2.8.0", "torch-npu": "2.8.0"})
    assert (alone.code, alone.fix) == ("fit-cann", "use torch 2.8.0 with torch-npu 2.8.0 on CANN 8.5.0")
    (beside,) = judge(fits, rows, {"torch": "2.8.0", "torch-npu": "2.8.0", "plugin": "1.0"})
    assert (beside.code, beside.fix) == ("fit-cann", NO_SET)


def test_a_release_without_a_row_is_offered_what_goes_with_its_number_and_what_that_takes_along() -> None:
    (finding,) = judge(fits, ROWS, {**SET, "torch-npu": "2.8.1"})
    assert finding.what == "torch 2.7.1 and torch-npu 2.8.1 do not fit: the latter is made for torch 2.8.1"
    # Nothing has torch 2.8.1, so it is not offered.
    assert finding.fix == "use torch 2.7.1 with torch-npu 2.7.1"
    (newer,) = judge(fits, ROWS, {**SET, "torch-npu": "2.8.0.post9"})
    assert newer.fix == (
        "use torch 2.7.1 with torch-npu 2.7.1, or torch 2.8.0 and torchvision 0.23.0 with torch-npu 2.8.0.post9"
    )


def test_an_overridden_package_is_not_moved_along() -> None:
    override = {"requirement": "torchvision==0.22.1", "reason": "made up for this test"}
    rows: Rows = [row for row in ROWS if row[0] not in OTHER_PLUGINS]
    pins = {**SET, "plugin": "0.12.0rc1", "engine": "0.12.0"}
    (finding,) = judge(fits, rows, pins, overrides=[override])
    assert finding.fix == NO_SET


# Sources that disagree


def test_two_tables_that_disagree_are_both_shown_and_neither_is_believed() -> None:
    """V13 (vllm-project/vllm-ascend issue 3349)."""
    rows: Rows = [
        ("plugin==1.0", {"torch": "2.7.1", "cann": "8.3.rc1"}, "makers"),
        ("plugin==1.0", {"torch": "2.8.0", "cann": "8.3.rc1"}, "others"),
    ]
    for torch in ("2.7.1", "2.8.0"):
        (finding,) = judge(fits, rows, {"torch": torch, "plugin": "1.0"})
        assert finding == Finding(
            Severity.WARNING,
            "fit-disagree",
            "sources disagree about plugin 1.0: "
            "torch 2.7.1 (the makers' table, 2026-01-02); torch 2.8.0 (another table, 2026-01-03)",
            f"this set has torch {torch}",
        )


def test_the_metadata_of_the_release_wins_over_a_page() -> None:
    rows: Rows = [
        ("plugin==1.0", {"torch": "2.8.0"}, "image"),
        ("plugin==1.0", {"torch": "2.7.1"}, "own"),
    ]
    (right,) = judge(fits, rows, {"torch": "2.7.1", "plugin": "1.0"})
    assert (right.severity, right.code) == (Severity.WARNING, "fit-disagree")
    wrong, shown = judge(fits, rows, {"torch": "2.8.0", "plugin": "1.0"})
    assert (wrong.severity, wrong.code) == (Severity.ERROR, "fit")
    assert wrong.what.endswith("plugin 1.0 is made for torch 2.7.1")
    assert shown.what == right.what


def test_the_makers_table_against_the_metadata_is_a_warning_that_says_which_weighs_most() -> None:
    """vllm-ascend 0.11.0's table has torch_npu 2.7.1.post1, its requirements.txt 2.7.1."""
    rows: Rows = [
        ("plugin==1.0", {"torch-npu": "2.7.1.post1", "cann": "8.3.rc1"}, "makers"),
        ("plugin==1.0", {"torch-npu": "2.7.1"}, "own"),
    ]
    (finding,) = judge(fits, rows, {"torch-npu": "2.7.1.post1", "plugin": "1.0"})
    assert finding == Finding(
        Severity.WARNING,
        "fit-disagree",
        "sources disagree about plugin 1.0: torch-npu 2.7.1 (the package's METADATA, 2026-01-01); "
        "torch-npu 2.7.1.post1 (the makers' table, 2026-01-02)",
        "this set has torch-npu 2.7.1.post1; of these sources the first weighs most",
    )


def test_a_set_in_use_on_another_cann_is_a_warning_with_both_sources() -> None:
    """verl's image has torch_npu 2.7.1.post2 on CANN 8.3.rc1, its makers' table says 8.5.0."""
    rows: Rows = [
        ("torch-npu==2.7.1.post2", {"torch": "2.7.1", "cann": "8.5.0"}, "makers"),
        ("torch-npu==2.7.1.post2", {"torch": "2.7.1", "cann": "8.3.rc1"}, "image"),
    ]
    (finding,) = judge(fits, rows, {"torch": "2.7.1", "torch-npu": "2.7.1.post2"})
    assert (finding.severity, finding.code) == (Severity.WARNING, "fit-disagree")
    assert finding.what.endswith(
        "CANN 8.5.0 (the makers' table, 2026-01-02); CANN 8.3.rc1 (an image in use, 2026-01-04)"
    )
    assert finding.why == "this set has CANN 8.3.rc1; of these sources the first weighs most"


def test_a_row_of_another_release_of_the_set_speaks_for_a_cann() -> None:
    """MindSpeed-RL 2.2.0 wants torch_npu 2.5.1 on CANN 8.3.rc1, where no row of torch_npu has it."""
    rows: Rows = [
        ("torch-npu==2.7.1", {"torch": "2.7.1", "cann": "8.5.0"}, "makers"),
        ("plugin==1.0", {"torch-npu": "2.7.1", "cann": "8.3.rc1"}, "image"),
    ]
    (finding,) = judge(fits, rows, {"torch": "2.7.1", "torch-npu": "2.7.1", "plugin": "1.0"})
    assert (finding.severity, finding.code) == (Severity.WARNING, "fit-disagree")
    assert finding.what == (
        "sources disagree about torch-npu 2.7.1: "
        "CANN 8.5.0 (the makers' table, 2026-01-02); CANN 8.3.rc1 (plugin 1.0: an image in use, 2026-01-04)"
    )


def test_a_release_that_only_another_ones_row_has_is_a_warning_with_both_sources() -> None:
    """vllm-ascend 0.11.0 ships torch_npu 2.7.1.post1 on CANN 8.3.rc2, and torch_npu's table has no such release."""
    rows: Rows = [
        ("torch-npu==2.7.1", {"torch": "2.7.1", "cann": "8.3.rc1"}, "makers"),
        ("plugin==1.0", {"torch": "2.7.1", "torch-npu": "2.7.1.post1", "cann": "8.3.rc1"}, "others"),
    ]
    (finding,) = judge(fits, rows, {"torch": "2.7.1", "torch-npu": "2.7.1.post1", "plugin": "1.0"})
    assert finding == Finding(
        Severity.WARNING,
        "fit-unknown",
        "no row of torch-npu has 2.7.1.post1, but plugin 1.0 asks for it on CANN 8.3.rc1",
        "without it: the makers' table, 2026-01-02; with it: another table, 2026-01-03",
        "nearest there: 2.7.1 (CANN 8.3.rc1)",
    )


def test_a_plugins_row_speaks_for_an_engine_with_another_torch() -> None:
    """vllm's wheels ask for torch 2.9.0; vllm-ascend 0.13.0 is made for that vllm, built for no device, on 2.8.0."""
    rows: Rows = [
        ("engine==0.13.0", {"torch": "2.9.0"}, "own"),
        ("plugin==0.13.0", {"engine": "0.13.0", "torch": "2.8.0"}, "others"),
    ]
    (finding,) = judge(fits, rows, {"torch": "2.8.0", "engine": "0.13.0", "plugin": "0.13.0"})
    assert (finding.severity, finding.code) == (Severity.WARNING, "fit-disagree")
    assert finding.what == (
        "sources disagree about engine 0.13.0: torch 2.9.0 (the package's METADATA, 2026-01-01); "
        "torch 2.8.0 (plugin 0.13.0: another table, 2026-01-03)"
    )
    assert [f.code for f in judge(fits, rows, {"torch": "2.8.0", "engine": "0.13.0"})] == ["fit"]


def test_no_row_speaks_for_an_extension_of_another_release() -> None:
    rows: Rows = [
        ("torch-npu==2.7.1", {"torch": "2.7.1", "cann": "8.3.rc1"}, "makers"),
        ("plugin==1.0", {"torch-npu": "2.7.1", "torch": "2.8.0"}, "others"),
    ]
    (finding,) = judge(fits, rows, {"torch": "2.8.0", "torch-npu": "2.7.1", "plugin": "1.0"})
    assert (finding.severity, finding.code) == (Severity.ERROR, "fit")


def test_of_builds_of_one_release_for_one_set_one_is_offered() -> None:
    more: Rows = [(f"torch-npu==2.9.0.post{n}", {"torch": "2.9.0", "cann": "8.5.0"}, "image") for n in (1, 2)]
    (finding,) = judge(fits, [*more, *ROWS], {"torch": "2.9.0", "torch-npu": "2.8.0"}, "8.5.0")[:1]
    assert finding.fix == ("use torch 2.9.0 with torch-npu 2.9.0, or torch 2.8.0 with torch-npu 2.8.0 on CANN 8.3.rc1")


# Several rows of one source


def test_alternatives_of_one_source_do_not_disagree() -> None:
    rows: Rows = [
        ("plugin==1.0", {"torch-npu": "2.7.1", "cann": "8.3.rc1"}, "others"),
        ("plugin==1.0", {"torch-npu": "2.7.1.post1", "cann": "8.5.0"}, "others"),
    ]
    for npu, cann in (("2.7.1", "8.3.rc1"), ("2.7.1.post1", "8.5.0")):
        assert judge(fits, rows, {"torch-npu": npu, "plugin": "1.0"}, cann) == ()
    (other,) = judge(fits, [*rows, (rows[0][0], {**rows[0][1], "cann": "8.2.rc1"}, "makers")], PAIR, "8.5.0")
    assert other.what == "plugin 1.0 is made for CANN 8.2.rc1 or 8.3.rc1, the target has 8.5.0"
    (crossed,) = judge(fits, rows, {"torch-npu": "2.7.1", "plugin": "1.0"}, "8.5.0")
    assert (crossed.severity, crossed.code) == (Severity.WARNING, "fit-cann")
    assert crossed.what == "plugin 1.0 is made for CANN 8.3.rc1, the target has 8.5.0"


def test_a_build_of_cann_is_its_release() -> None:
    pins = {"torch": "2.8.0", "torch-npu": "2.8.0"}
    assert judge(fits, ROWS, pins, "8.3.RC1.B160") == ()
    assert holds("cann", "8.5.0", "8.5.0.b160")
    assert not holds("cann", "8.5.0", "8.5.1")
    assert not holds("cann", "8.5.0", "8.5.0.alpha001")


def test_a_release_without_a_row_and_without_cann_in_its_rows_says_what_it_may_not_fit() -> None:
    (finding,) = judge(fits, ROWS, {"torch": "2.9.0", "torchvision": "0.24.0"})
    assert finding.severity is Severity.WARNING
    assert finding.what == "no row of the table has torchvision 0.24.0: whether it fits torch 2.9.0 is unknown"
    assert judge(fits, ROWS, {"torchvision": "0.24.0"}) == ()


# The driver

DRIVEN: Rows = [
    ("plugin==1.0", {"torch": "2.7.1", "cann": "8.3.rc1", "driver": "25.0.rc1.1"}, "makers"),
    ("engine==2.0", {"cann": "8.3.rc1", "driver": "25.0.rc1"}, "others"),
]


def test_the_newest_of_the_oldest_drivers_is_one_note() -> None:
    (finding,) = judge(driver, DRIVEN, {"torch": "2.7.1", "plugin": "1.0", "engine": "2.0"})
    assert finding == Finding(
        Severity.NOTE,
        "driver",
        "the host needs driver 25.0.rc1.1 or newer: plugin 1.0 asks for it",
        "the makers' table, 2026-01-02",
    )


def test_only_rows_that_the_set_is_in_speak_of_the_driver() -> None:
    pins = {"torch": "2.8.0", "plugin": "1.0", "engine": "2.0"}
    assert [f.what for f in judge(driver, DRIVEN, pins)] == [
        "the host needs driver 25.0.rc1 or newer: engine 2.0 asks for it"
    ]
    assert judge(driver, DRIVEN, pins, "8.5.0") == ()
    assert judge(driver, ROWS, pins) == ()


def test_a_driver_is_no_finding_of_the_fit() -> None:
    assert judge(fits, DRIVEN, {"torch": "2.7.1", "plugin": "1.0", "engine": "2.0"}) == ()


@pytest.mark.parametrize(
    ("wanted", "version", "fit"),
    [
        ("25.0.rc1.1", "25.0.rc1.1", True),
        ("25.0.rc1.1", "25.0.rc1", False),
        ("25.0.rc1.1", "25.5.0", True),
        (">=24.1.0,<25.0.0", "25.0.rc1", True),
        (">=24.1.0,<25.0.0", "25.0.0", False),
        ("==25.5.0", "25.5.1", False),
        ("~=25.5", "25.5.1", False),
        ("25.5.0", "unknown", False),
    ],
)
def test_a_driver_alone_is_the_oldest_and_ranges_compare_in_its_own_order(wanted: str, version: str, fit: bool) -> None:
    assert holds("driver", wanted, version) is fit


def test_words_are_listed_as_in_a_sentence() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "a"]) == "a and b"
    assert listed(["a", "b", "c"], "or") == "a, b or c"
