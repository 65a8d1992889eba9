"""Rules over a recipe and its lock: small pure functions, each yielding findings.

They read the data files and the lock only; no version stands here. A pair that no table has is unknown, never ok.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.core.findings import Finding, in_order
from cannery.core.words import BaseKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.core.catalog import Compatibility, PairRow
    from cannery.core.lock import Lock
    from cannery.core.recipe import Recipe

TORCH, TORCH_NPU = "torch", "torch-npu"


def check_recipe(recipe: Recipe, compatibility: Compatibility, lock: Lock | None = None) -> tuple[Finding, ...]:
    """Return every finding about `recipe`, from its pins and, when given, its lock; errors first."""
    return in_order([*_torch_pair(recipe, compatibility, lock), *_overrides(recipe), *_incomplete(lock)])


def _version(recipe: Recipe, lock: Lock | None, package: str) -> str | None:
    """Return the version of `package` that is installed: the lock's, and the recipe's pin while there is no lock."""
    if lock is not None:
        return next((p.version for p in lock.packages if p.name == package), None)
    return next((c.version for c in recipe.wheels if c.package == package and c.version), None)


def _torch_pair(recipe: Recipe, compatibility: Compatibility, lock: Lock | None) -> Iterator[Finding]:
    """torch_npu X.Y.Z[.postN] is a C++ extension of torch X.Y.Z, built for one CANN release."""
    torch, npu = _version(recipe, lock, TORCH), _version(recipe, lock, TORCH_NPU)
    if torch is None or npu is None:
        return
    rows = [row for row in compatibility.torch_pairs if Version(row.torch_npu) == Version(Version(npu).public)]
    partners = sorted({row.torch for row in rows} or {Version(npu).base_version})
    if Version(torch).base_version not in {Version(p).base_version for p in partners}:
        yield Finding(
            Severity.ERROR,
            "torch-pair",
            f"torch {torch} and torch_npu {npu} do not fit: torch_npu {npu} is built for torch {' or '.join(partners)}",
            _pair_source(rows),
            _pair_fix(torch, npu, partners, recipe, compatibility),
        )
    elif not rows:
        severity = Severity.NOTE if recipe.base.kind is BaseKind.STANDIN else Severity.WARNING
        yield Finding(
            severity,
            "torch-pair-unknown",
            f"no compatibility table has torch_npu {npu}: whether it fits CANN {recipe.target.cann} is unknown",
            fix="look for a newer table in Ascend/pytorch, and add its row to images/compatibility.yaml",
        )
    elif not any(row.cann == recipe.target.cann for row in rows):
        yield Finding(
            Severity.WARNING,
            "torch-npu-cann",
            f"torch_npu {npu} is made for CANN {' or '.join(sorted(row.cann for row in rows))}, "
            f"the target has {recipe.target.cann}",
            _pair_source(rows),
            _cann_fix(torch, rows, recipe, compatibility),
        )


def _pair_source(rows: list[PairRow]) -> str:
    if not rows:
        return "torch_npu's own version says which torch it extends; no table has this release"
    return "; ".join(sorted({f"{row.source}, {row.date}" for row in rows}))


def _pair_fix(torch: str, npu: str, partners: list[str], recipe: Recipe, compatibility: Compatibility) -> str:
    """Offer the pairs that a table has for this CANN and either torch, else the pairs of equal release."""
    release = Version(torch).base_version
    offers = _pairs_for(recipe.target.cann, {release, Version(npu).base_version}, compatibility)
    if not offers:
        known = {row.torch for row in compatibility.torch_pairs}
        offers = [f"torch {partner} with torch_npu {npu}" for partner in partners]
        offers += [] if release in known else [f"torch {release} with torch_npu {release}"]
    return f"use {', or '.join(offers)}"


def _cann_fix(torch: str, rows: list[PairRow], recipe: Recipe, compatibility: Compatibility) -> str:
    """Offer what this CANN has for the same torch, and the CANN that torch_npu was made for."""
    offers = _pairs_for(recipe.target.cann, {Version(torch).base_version}, compatibility)
    return ", or ".join([f"use {offer}" for offer in offers] + [f"take CANN {row.cann}" for row in rows])


def _pairs_for(cann: str, releases: set[str], compatibility: Compatibility) -> list[str]:
    rows = [row for row in compatibility.torch_pairs if row.cann == cann]
    return [f"torch {row.torch} with torch_npu {row.torch_npu}" for row in rows if row.torch in releases]


def _overrides(recipe: Recipe) -> Iterator[Finding]:
    """An override bends what packages ask for: it is always shown, with its reason."""
    for override in recipe.profile.overrides:
        yield Finding(Severity.NOTE, "override", f"{override.requirement} overrides what packages ask", override.reason)


def _incomplete(lock: Lock | None) -> Iterator[Finding]:
    """A package without a hash can be checked, not built."""
    for package in lock.packages if lock else ():
        if not package.complete:
            yield Finding(
                Severity.WARNING,
                "lock-incomplete",
                f"{package.name} {package.version} is locked by version only: index {package.index} was not reached",
                "its wheel and hash stand on that index alone",
                f"run `python build.py lock` for this profile where index {package.index} can be reached",
            )
