"""Bounds that follow from the compatibility table, so that a resolver never chooses torch by itself.

torch_npu trails torch by months; a package that asks for any torch would bring the newest one in.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.component import Wheels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cannery.catalog.compatibility import Compatibility, Row
    from cannery.recipe.recipe import Chosen

TORCH, TORCH_NPU = "torch", "torch-npu"


def held_bounds(chosen: Sequence[Chosen], table: Compatibility) -> tuple[str, ...]:
    """Return PEP 508 constraints: torch as in torch_npu's rows where no pin names it, and what is bound with torch.

    A release in no row gives no bound: the rules report that it is unknown.
    """
    pins = {c.package: c.version for c in chosen if c.version}
    torch, npu = pins.get(TORCH), pins.get(TORCH_NPU)
    found: list[str] = []
    if torch is None and npu is not None:
        torch = next((row.fits[TORCH] for row in rows_for(table, TORCH_NPU, npu) if TORCH in row.fits), None)
        found += [f"{TORCH}=={torch}"] if torch else []
    if torch is not None:
        followers = {canonicalize_name(n) for c in chosen if c.package == TORCH for n in _binds(c)} - {*pins}
        found += _followers(sorted(followers), torch, table)
    return tuple(sorted(found))


def _binds(chosen: Chosen) -> tuple[str, ...]:
    return chosen.component.binds if isinstance(chosen.component, Wheels) else ()


def _followers(names: Iterable[str], torch: str, table: Compatibility) -> Iterator[str]:
    for name in names:
        rows = [row for row in table.rows if row.name == name and takes(row.fits.get(TORCH, ""), torch)]
        versions = sorted({Version(row.version) for row in rows})
        if versions:
            bound = f"=={versions[0]}" if len(versions) == 1 else f">={versions[0]},<={versions[-1]}"
            yield f"{name}{bound}"


def rows_for(table: Compatibility, name: str, version: str) -> tuple[Row, ...]:
    """Return the rows of one release, in the table's order."""
    return tuple(row for row in table.rows if row.name == name and same_release(row.version, version))


@cache
def takes(wanted: str, version: str) -> bool:
    """Whether a cell of a row, a version or a range, holds a distribution's version; an empty one holds nothing."""
    if wanted and not wanted[0].isdigit():
        return SpecifierSet(wanted).contains(Version(version).public, prereleases=True)
    return same_release(wanted, version)


@cache
def same_release(one: str, other: str) -> bool:
    """Whether two versions are equal without their local parts (`2.8.0+cpu` is `2.8.0`); "" equals nothing."""
    return bool(one and other) and _public(one) == _public(other)


@cache
def _public(version: str) -> Version:
    """Return a version without its local part. Kept, as the answers above: a search of the table asks them again."""
    return Version(Version(version).public)
