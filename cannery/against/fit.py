"""An image against itself: packages of it that are not made for each other, by the table and by their own metadata."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cannery.catalog.compatibility import CANN, PYTHON
from cannery.catalog.versions import live, marker_environment
from cannery.compat.table import holds, phrase
from cannery.recipe.select import TORCH, TORCH_NPU, rows_for
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cannery.against.image import Distribution, Image
    from cannery.catalog.compatibility import Compatibility


class Kind(StrEnum):
    """Kinds of differences, the heaviest first. A `NOTE` does not make an image differ from a profile."""

    UNFIT = "does not fit together"
    BREAKS = "breaks first"
    MISSING = "missing"
    VERSION = "version"
    ENVIRONMENT = "environment"
    NOTE = "note"

    @property
    def matters(self) -> bool:
        """Whether an image with such a difference is another one than the profile's."""
        return self is not Kind.NOTE


@dataclass(frozen=True)
class Difference:
    """One difference: its subject, what is wanted ("" for nothing), what was found, and more about it."""

    kind: Kind
    subject: str
    wanted: str
    found: str
    note: str = ""

    def __str__(self) -> str:
        found = self.found or "not there"
        text = f"{found}, wanted: {self.wanted}" if self.wanted else found
        return f"{self.subject}: {text}" + (f" ({self.note})" if self.note else "")


def misfits(image: Image, table: Compatibility, settled: Collection[str]) -> Iterator[Difference]:
    """Give what does not fit in an image, once a pair: what the table finds first, and of that torch_npu first.

    A pair is none of which both are `settled`: the profile has them beside each other.
    """
    packages = sorted(image.packages.values(), key=lambda one: one.name)
    first = sorted(packages, key=lambda one: one.name != TORCH_NPU)
    found = [
        *((one, *misfit) for one in first for misfit in _by_table(one, image, table)),
        *((one, *misfit, "its own metadata") for one in packages for misfit in _by_metadata(one, image)),
    ]
    known = set[tuple[str, str]]()
    for one, key, wanted, source in found:
        if (one.name, key) not in known and not {one.name, key} <= {*settled}:
            known.add((one.name, key))
            # Sets that no table has run on other CANNs: a note, as `check` gives a warning.
            kind, have = Kind.NOTE if key == CANN else Kind.UNFIT, phrase(key, _versions(image)[key])
            yield Difference(kind, f"{one.name} {one.version}", phrase(key, wanted), have, source)


def _by_table(one: Distribution, image: Image, table: Compatibility) -> Iterator[tuple[str, str, str]]:
    """Give (key, what is wanted, source) that no row of a release holds; several rows are sets to choose from."""
    if not _is_version(one.version):
        return
    here = _versions(image)
    rows = rows_for(table, one.name, one.version)
    for key in sorted({key for row in rows for key in row.fits if here.get(key)}):
        saying = [row for row in rows if key in row.fits]
        if not any(holds(key, row.fits[key], here[key]) for row in saying):
            wanted = " or ".join(dict.fromkeys(row.fits[key] for row in saying))
            yield key, wanted, str(table.sources[saying[0].source])
    torch = here.get(TORCH, "")
    if one.name == TORCH_NPU and not rows and torch:
        wanted = Version(one.version).base_version
        if Version(torch).base_version != wanted:
            yield TORCH, wanted, "torch_npu X.Y.Z is an extension of torch X.Y.Z"


def _by_metadata(one: Distribution, image: Image) -> Iterator[tuple[str, str]]:
    """Give (name, range) of requirements that other packages of the image do not meet; a missing one is none here."""
    environment = {**marker_environment(image.python, Arch(image.config.arch)), "extra": ""}
    here = _versions(image)
    for text in one.requires:
        with suppress(InvalidRequirement):
            for wanted in live([text], environment):
                name = canonicalize_name(wanted.name)
                if (
                    name in image.packages
                    and name in here
                    and not wanted.specifier.contains(here[name], prereleases=True)
                ):
                    yield name, str(wanted.specifier)


def _versions(image: Image) -> Mapping[str, str]:
    packages = {name: one.version for name, one in image.packages.items() if _is_version(one.version)}
    return {**packages, CANN: image.toolkit, PYTHON: image.python}


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
