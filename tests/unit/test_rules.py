from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import catalog, compatibility, lock, package, plan, profile, recipe
from hypothesis import given
from hypothesis import strategies as st

from cannery.core.errors import FindingsError
from cannery.core.findings import Finding, errors, in_order
from cannery.core.recipe import Options, Recipe
from cannery.core.rules import check_recipe
from cannery.core.words import Severity

if TYPE_CHECKING:
    from cannery.core.compatibility import Compatibility, Row
    from cannery.core.lock import Lock

ROWS = compatibility().rows


def pair(torch: str, npu: str, **options: str) -> Recipe:
    """The made-up profile with that pair, on the row's CANN."""
    pins = [{"name": "torch", "version": torch}, {"name": "torch-npu", "version": npu}]
    return recipe(Options(**options), catalog(profiles={"stack": profile(components=pins)}))


def found(subject: Recipe, data: Compatibility | None = None) -> tuple[Finding, ...]:
    return check_recipe(subject, catalog(compatibility=data or compatibility()))


def judged(subject: Recipe, its_lock: Lock) -> tuple[Finding, ...]:
    return check_recipe(subject, catalog(), {subject.target.arch: its_lock})


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
    offers = [f"torch {r.fits['torch']} with torch-npu {r.version}" for r in ROWS if r.fits["cann"] == row.fits["cann"]]
    assert f"torch {row.fits['torch']} with torch-npu {row.version}" in finding.fix
    assert all(part in offers for part in finding.fix.removeprefix("use ").split(", or "))


@given(st.sampled_from(ROWS), st.sampled_from(ROWS))
def test_only_the_pairs_of_the_table_pass(one: Row, other: Row) -> None:
    failed = errors(found(pair(one.fits["torch"], other.version, cann=one.fits["cann"])))
    assert bool(failed) is (one.fits["torch"] != other.fits["torch"])


def test_a_local_version_is_the_same_release() -> None:
    assert found(pair("2.9.0+cpu", "2.9.0")) == ()


def test_a_release_that_no_table_has_is_unknown_and_on_the_stand_in_a_note() -> None:
    (real,) = found(pair("2.13.0", "2.13.0"))
    (standin,) = found(pair("2.13.0", "2.13.0", base="standin"))
    assert real.code == standin.code == "fit-unknown"
    assert (real.severity, standin.severity) == (Severity.WARNING, Severity.NOTE)
    assert "8.5.0" in real.what


def test_a_release_that_no_table_has_still_says_which_torch_it_extends() -> None:
    (finding,) = errors(found(pair("2.13.0", "2.14.0", base="standin")))
    assert "the latter is made for torch 2.14.0" in finding.what
    assert finding.fix == "use torch 2.14.0 with torch-npu 2.14.0, or torch 2.13.0 with torch-npu 2.13.0"


def test_a_post_release_of_another_cann_is_a_warning_that_says_what_this_cann_has() -> None:
    (finding,) = found(pair("2.8.0", "2.8.0.post2", cann="8.3.rc1"))
    assert (finding.severity, finding.code) == (Severity.WARNING, "fit-cann")
    assert "made for CANN 8.5.0, the target has 8.3.rc1" in finding.what
    assert (
        finding.fix == "use torch 2.8.0 with torch-npu 2.8.0, or torch 2.8.0 with torch-npu 2.8.0.post2 on CANN 8.5.0"
    )


def test_a_pair_for_another_cann_alone_is_not_offered_again() -> None:
    (finding,) = found(pair("2.9.0", "2.9.0", cann="8.3.rc1"))
    assert finding.fix == "use torch 2.9.0 with torch-npu 2.9.0 on CANN 8.5.0"


def test_the_locks_version_counts_where_nothing_is_pinned() -> None:
    subject = recipe(found=catalog(profiles={"stack": profile(components=[{"name": "torch"}, {"name": "torch-npu"}])}))
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


def test_an_override_is_shown_with_its_reason() -> None:
    override = {"requirement": "click==8.0", "reason": "made up for this test"}
    subject = recipe(found=catalog(profiles={"stack": profile(overrides=[override])}))
    (finding,) = found(subject)
    assert (finding.severity, finding.code, finding.why) == (Severity.NOTE, "override", "made up for this test")


def test_an_incomplete_lock_is_a_warning_that_names_package_and_index() -> None:
    subject = recipe()
    whole = lock(subject)
    open_torch = tuple(replace(p, file="", sha256="", size=0) if p.name == "torch" else p for p in whole.packages)
    (finding,) = judged(subject, replace(whole, packages=open_torch))
    assert finding.code == "lock-incomplete"
    assert "torch 2.9.0+cpu" in finding.what
    assert "torch-cpu" in finding.what


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
