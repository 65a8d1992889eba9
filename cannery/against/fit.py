"""An image against itself: packages of it that are not made for each other, by the table and by their own metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cannery.catalog.compatibility import CANN, PYTHON
from cannery.catalog.versions import live, marker_environment
from cannery.compat.table import holds
from cannery.recipe.select import TORCH, TORCH_NPU, rows_for
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.against.image import Distribution, Image
    from cannery.catalog.compatibility import Compatibility


@dataclass(frozen=True)
class Misfit:
    """`name` in `version` is made for `wanted` of `other`, and the image has `found`; `source` reports it."""

    name: str
    version: str
    other: str
    wanted: str
    found: str
    source: str


def misfits(image: Image, table: Compatibility) -> tuple[Misfit, ...]:
    """Return what does not fit in an image: what the table finds first, and of that torch_npu first."""
    by_table = [one for dist in image.packages.values() for one in _by_table(dist, image, table)]
    known = {(one.name, one.other) for one in by_table}
    by_metadata = [one for dist in image.packages.values() for one in _by_metadata(dist, image)]
    by_table.sort(key=lambda one: (one.name != TORCH_NPU, one.name, one.other))
    by_metadata.sort(key=lambda one: (one.name, one.other))
    return (*by_table, *(one for one in by_metadata if (one.name, one.other) not in known))


def _by_table(one: Distribution, image: Image, table: Compatibility) -> Iterator[Misfit]:
    """Give what no row of a release holds. Several rows are sets to choose from, so one that holds is enough."""
    if not _is_version(one.version):
        return
    here = _versions(image)
    rows = rows_for(table, one.name, one.version)
    for key in dict.fromkeys(key for row in rows for key in row.fits if here.get(key)):
        saying = [row for row in rows if key in row.fits]
        if not any(holds(key, row.fits[key], here[key]) for row in saying):
            wanted = " or ".join(dict.fromkeys(row.fits[key] for row in saying))
            yield Misfit(one.name, one.version, key, wanted, here[key], str(table.sources[saying[0].source]))
    torch = here.get(TORCH, "")
    if one.name == TORCH_NPU and not rows and torch:
        wanted = Version(one.version).base_version
        if Version(torch).base_version != wanted:
            yield Misfit(one.name, one.version, TORCH, wanted, torch, "torch_npu X.Y.Z is an extension of torch X.Y.Z")


def _by_metadata(one: Distribution, image: Image) -> Iterator[Misfit]:
    """Give the requirements of a package that other packages of the image do not meet; a missing one is none here."""
    environment = {**marker_environment(image.python, Arch(image.config.arch)), "extra": ""}
    here = _versions(image)
    for text in one.requires:
        try:
            wanted = [*live([text], environment)]
        except InvalidRequirement:
            continue
        for requirement in wanted:
            name = canonicalize_name(requirement.name)
            if (
                name in image.packages
                and name in here
                and not requirement.specifier.contains(here[name], prereleases=True)
            ):
                yield Misfit(one.name, one.version, name, str(requirement.specifier), here[name], "its own metadata")


def _versions(image: Image) -> Mapping[str, str]:
    packages = {name: one.version for name, one in image.packages.items() if _is_version(one.version)}
    return {**packages, CANN: image.toolkit, PYTHON: image.python}


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
