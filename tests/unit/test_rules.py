from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import catalog, compatibility, components, lock, package, plan, profile, recipe
from hypothesis import given
from hypothesis import strategies as st

from cannery.catalog.component import Wheels
from cannery.compat.rules import check_recipe
from cannery.compat.subject import Finding, errors, in_order
from cannery.errors import FindingsError
from cannery.recipe.recipe import Options, Recipe
from cannery.vocab import Severity

if TYPE_CHECKING:
    from cannery.catalog.compatibility import Compatibility, Row
    from cannery.lock.lock import Lock

ROWS = compatibility().rows


def pair(torch: str, npu: str, **options: str) -> Recipe:
    """The made-up profile with that pair, on the row's CANN."""
    pins = [{"name": "torch", "version": torch}, {"name": "torch-npu", "version": npu}]
    return recipe(Options(**options), catalog(profiles={"stack": profile(components=pins)}))


def found(subject: Recipe, data: Compatibility | None = None) -> tuple[Finding, ...]:
    return check_recipe(subject, catalog(compatibility=data or compatibility()))


def judged(subject: Recipe, its_lock: Lock) -> tuple[Finding, ...]:
    return check_recipe(subject, catalog(), {subject.target.arch: its_lock})


def offer(row: Row, cann: str) -> str:
    """What is offered of a row to a target with that CANN."""
    other = "" if row.fits["cann"] == cann else f" on CANN {row.fits['cann']}"
    return f"torch {row.fits['torch']} with torch-npu {row.version}{other}"


def row_id(row: Row) -> str:
    return f"{row.version}-on-{row.fits['cann']}"


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_a_row_of_the_table_has_no_finding(row: Row) -> None:
    assert found(pair(row.fits["torch"], row.version, cann=row.fits["cann"])) == ()


@pytest.mark.parametrize("step", [(1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1)])
@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_moving_a_rows_torch_by_one_release_is_refused_with_a_pair_that_fits(
    row: Row, step: tuple[int, int, int]
) -> None:
    moved = ".".join(str(int(a) + b) for a, b in zip(row.fits["torch"].split("."), step, strict=True))
    (finding,) = errors(found(pair(moved, row.version, cann=row.fits["cann"])))
    assert finding.code == "fit"
    assert f"torch {moved}" in finding.what
    assert f"torch-npu {row.version}" in finding.what
    assert finding.why == "a table, 2026-01-01"
    assert f"torch {row.fits['torch']} with torch-npu {row.version}" in finding.fix
    assert {*finding.fix.removeprefix("use ").split(", or ")} <= {offer(r, row.fits["cann"]) for r in ROWS}


@given(st.sampled_from(ROWS), st.sampled_from(ROWS))
def test_only_the_pairs_of_the_table_pass(one: Row, other: Row) -> None:
    failed = errors(found(pair(one.fits["torch"], other.version, cann=one.fits["cann"])))
    assert bool(failed) is (one.fits["torch"] != other.fits["torch"])


def test_a_local_version_is_the_same_release() -> None:
    assert found(pair("2.9.0+cpu", "2.9.0")) == ()


@pytest.mark.parametrize(
    ("version", "base", "severity"),
    [
        ("2.13.0", "cann", Severity.WARNING),
        ("2.8.1", "cann", Severity.WARNING),
        ("2.13.0", "standin", Severity.NOTE),
        ("2.8.1", "standin", Severity.NOTE),
    ],
)
def test_a_release_that_no_row_has_is_unknown_and_a_note_on_a_stand_in_alone(
    version: str, base: str, severity: Severity
) -> None:
    (finding,) = found(pair(version, version, base=base))
    assert (finding.severity, finding.code) == (severity, "fit-unknown")
    assert finding.what == f"no row of the table has torch-npu {version}: whether it fits CANN 8.5.0 is unknown"
    assert finding.fix.startswith("look for a newer table of torch-npu's makers")


def test_a_release_that_does_not_exist_is_told_with_the_nearest_that_do() -> None:
    """V08: torch 2.9.1 has no torch_npu."""
    (finding,) = found(pair("2.8.1", "2.8.1"))
    assert finding.fix.endswith("; nearest there: 2.8.0 (CANN 8.3.rc1), 2.8.0.post2 (CANN 8.5.0)")


def test_a_release_that_no_table_has_still_says_which_torch_it_extends_and_offers_only_known_releases() -> None:
    (finding,) = errors(found(pair("2.13.0", "9.9", base="standin")))
    assert "the latter is made for torch 9.9" in finding.what
    assert finding.fix == (
        "use torch 2.9.0 with torch-npu 2.9.0, or torch 2.8.0 with torch-npu 2.8.0.post2, "
        "or torch 2.7.1 with torch-npu 2.7.1.post2"
    )
    (finding,) = errors(found(pair("2.9.0", "2.8.0.post9", base="standin")))  # the table has torch 2.8.0
    assert "use torch 2.8.0 with torch-npu 2.8.0.post9, or " in f"{finding.fix}, or "


def test_a_release_whose_torch_only_a_component_has_is_offered_with_it() -> None:
    torch = components()["torch"]
    assert isinstance(torch, Wheels)
    described = torch.model_copy(update={"metadata": {"2.14.0": torch.metadata["2.9.0"]}})
    pins = [{"name": "torch", "version": "2.13.0"}, {"name": "torch-npu", "version": "2.14.0"}]
    its = catalog(profiles={"stack": profile(components=pins)}, components={**components(), "torch": described})
    (finding,) = errors(check_recipe(recipe(Options(base="standin"), its), its))
    assert finding.fix == "use torch 2.14.0 with torch-npu 2.14.0"


def test_a_post_release_of_another_cann_is_a_warning_that_says_what_this_cann_has() -> None:
    (finding,) = found(pair("2.8.0", "2.8.0.post2", cann="8.3.rc1"))
    assert (finding.severity, finding.code) == (Severity.WARNING, "fit-cann")
    assert "made for CANN 8.5.0, the target has 8.3.rc1" in finding.what
    assert (
        finding.fix == "use torch 2.8.0 with torch-npu 2.8.0, or torch 2.8.0 with torch-npu 2.8.0.post2 on CANN 8.5.0"
    )


def test_two_pins_that_do_not_fit_are_both_named_with_both_pairs_of_this_cann() -> None:
    """V04 (vllm-project/vllm-ascend issue 4081). The warning about CANN has no ways out beside the error."""
    error, warning = found(pair("2.8.0", "2.7.1"))
    assert error == Finding(
        Severity.ERROR,
        "fit",
        "torch 2.8.0 and torch-npu 2.7.1 do not fit: torch-npu 2.7.1 is made for torch 2.7.1",
        "a table, 2026-01-01",
        "use torch 2.8.0 with torch-npu 2.8.0.post2, or torch 2.7.1 with torch-npu 2.7.1.post2",
    )
    assert (warning.code, warning.fix) == ("fit-cann", "")


def test_a_pair_for_another_cann_is_offered_once_beside_what_this_cann_has() -> None:
    (finding,) = found(pair("2.9.0", "2.9.0", cann="8.3.rc1"))
    assert finding.code == "fit-cann"
    assert finding.fix == (
        "use torch 2.9.0 with torch-npu 2.9.0 on CANN 8.5.0, "
        "or torch 2.8.0 with torch-npu 2.8.0, or torch 2.7.1 with torch-npu 2.7.1"
    )


def test_the_locks_version_counts_where_nothing_is_pinned() -> None:
    pins = [{"name": "torch", "version": "2.8.0"}, {"name": "torch-npu"}]
    subject = recipe(found=catalog(profiles={"stack": profile(components=pins)}))
    assert check_recipe(subject, catalog()) == ()
    content = (package("torch", "2.8.0"), package("torch-npu", "2.9.0"))
    (finding,) = judged(subject, replace(lock(subject), packages=content))
    assert finding.code == "fit"


def test_the_locks_version_counts_more_than_the_pin() -> None:
    """What is installed is what the lock has, whatever the profile says."""
    subject = pair("2.9.0", "2.9.0")
    assert judged(subject, lock(subject)) == ()
    content = tuple(replace(p, version="2.8.0.post2") if p.name == "torch-npu" else p for p in lock(subject).packages)
    (finding,) = errors(judged(subject, replace(lock(subject), packages=content)))
    assert finding.code == "fit"
    assert "torch 2.9.0+cpu and torch-npu 2.8.0.post2 do not fit" in finding.what


def test_findings_come_errors_first_and_once() -> None:
    note, warning, error = (Finding(s, "code", "what") for s in (Severity.NOTE, Severity.WARNING, Severity.ERROR))
    assert in_order([note, warning, error, note]) == (error, warning, note)
    assert errors([note, error]) == (error,)


def test_a_finding_reads_as_what_why_fix() -> None:
    assert str(Finding(Severity.ERROR, "a", "b", "c", "d")) == "error [a] b\n    why: c\n    fix: d"
    assert str(Finding(Severity.NOTE, "a", "b")) == "note [a] b"


@pytest.mark.parametrize(
    ("options", "what", "offer"),
    [
        (
            Options(python="3.12"),
            "8.5.0-910b-ubuntu22.04-py3.12",
            "existing: 8.5.0-910b-ubuntu22.04-py3.10, 8.5.0-910b-ub",
        ),
        (Options(chip="310p"), "8.5.0-310p-ubuntu22.04-py3.11", "existing: 8.5.0-910b-ubuntu22.04-py3.11, 8.5.0-a3-ub"),
        (Options(cann="8.5.0.B160", chip="310p"), "8.5.0-310p-ubuntu22.04-py3.11", "existing: 8.5.0-910b-ubuntu22.04-"),
    ],
)
def test_a_target_without_an_image_is_an_error_that_lists_the_nearest_tags(
    options: Options, what: str, offer: str
) -> None:
    (finding,) = errors(found(recipe(options)))
    assert finding.code == "base-tag"
    assert finding.what == f"no CANN image {what} exists"
    assert finding.fix.startswith(offer)


def test_a_target_without_an_image_is_not_planned() -> None:
    with pytest.raises(FindingsError, match="no CANN image"):
        plan(Options(python="3.12", force=True))
