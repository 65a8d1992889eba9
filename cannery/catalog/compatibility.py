"""What fits together, each row with its source and date: images/compatibility.yaml and images/drivers.yaml."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from packaging.utils import canonicalize_name
from pydantic import Field, field_validator, model_validator

from cannery.catalog import fields
from cannery.catalog.component import Closed
from cannery.catalog.errors import FaultError
from cannery.catalog.fields import specifier, version
from cannery.catalog.target import canonical, parse_cann, parse_python, parsed_version, public_version, series_of
from cannery.errors import UsageError
from cannery.vocab import Severity, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from packaging.version import Version

CANN, PYTHON, DRIVER = "cann", "python", "driver"
BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*(.+)")


class Rank(StrEnum):
    """The weight of a source of rows; the first weighs most.

    The metadata of a release outweighs its makers' table. The table outweighs a page or an image that shows a set in
    use. The metadata of another build (vllm for CUDA) weighs least.
    """

    METADATA = "metadata"
    TABLE = "table"
    DOCUMENT = "document"
    BUILD = "build"


class DriverSource(Closed):
    """Where rows were read, and on which date."""

    what: fields.Text
    date: fields.DateText

    def __str__(self) -> str:
        return f"{self.what}, {self.date}"


class RowSource(DriverSource):
    """Where rows of the table were read, on which date, and the weight of that source."""

    rank: Rank


def _check_sources(field: str, named: Iterable[str], sources: Collection[str]) -> None:
    """Raise `FaultError` for the first entry of a list whose source is not in `sources`."""
    for position, source in enumerate(named):
        if source not in sources:
            what = f"a source that is not in `sources`: {source}"
            raise FaultError(what, did_you_mean(source, sources), (field, position, "source"))


def _cell(key: str, text: str) -> str:
    """Read a cell of a row: a version or a range of a distribution, of Python or of the driver, or a CANN version."""
    is_version = text[:1].isdigit()
    if key == CANN:
        return parse_cann(text, "")
    if key == DRIVER:
        bounds = [BOUND.fullmatch(part.strip()) for part in text.split(",")]
        words = [text] if is_version else [match[2] if match else "" for match in bounds]
        try:
            versions = [canonical(word) for word in words]
        except ValueError as error:
            hint = "written like 25.3.rc1, or >=25.0.rc1,<26.0.0"
            raise FaultError(f"{text!r} is not a driver version", hint) from error
        return versions[0] if is_version else text
    if not text:
        raise FaultError("a version or a range of versions is wanted here", "like 2.7.1, or >=3.10,<3.12")
    if not is_version:
        return specifier(text)
    return parse_python(text, "") if key == PYTHON else version(text)


class Row(Closed):
    """What one release fits: `of` is `NAME==VERSION`, `fits` maps other names to a version or a range.

    The keys of `fits` are distributions, `cann`, `python` and `driver`. A plain version means that public version
    (`2.7.1` includes `2.7.1+cpu`), and for `driver` the oldest one. A range is a PEP 440 specifier (`>=3.9,<3.12`).
    """

    of: fields.ExactText
    fits: dict[fields.Name, fields.Text] = Field(min_length=1)
    source: fields.Text
    note: fields.Text = ""

    @field_validator("fits")
    @classmethod
    def _spelt_one_way(cls, value: dict[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for written, fit in value.items():
            name = canonicalize_name(written)
            if name in found:
                raise FaultError(f"{name} is here in two spellings", "remove one of them", (written,))
            try:
                found[name] = _cell(name, fit.strip())
            except (FaultError, UsageError) as error:
                raise FaultError(error.what.removeprefix(": "), error.hint, (written,)) from error
        return found

    @cached_property
    def name(self) -> str:
        """The normalised name of the release's distribution."""
        return canonicalize_name(self.of.partition("==")[0].strip())

    @cached_property
    def version(self) -> str:
        """The release's version."""
        return self.of.partition("==")[2].strip()


class Compatible(Closed):
    """A distribution that works with more CANN versions than its rows name: with all of the series in `cann` (`9.1`).

    `source` states it, and `but` is the exception in it.
    """

    of: fields.Name
    cann: tuple[fields.SeriesText, ...] = Field(min_length=2)
    but: fields.Text
    source: fields.Text


class Denied(Closed):
    """A glob of distribution names that must not be in an image, with the reason.

    With `wheel`, only their wheels are refused: the profile may build them from source.
    """

    pattern: fields.Text
    reason: fields.Text
    wheel: bool = False


class EnvRule(Closed):
    """A rule for a variable in images that have the distribution `beside`.

    The variable must not match the pattern `value`. Without `value`, it must name the version of `beside`.
    """

    variable: fields.EnvName
    beside: fields.Name
    value: fields.PatternText | None = None
    reason: fields.Text
    severity: Severity = Severity.ERROR


class Compatibility(Closed):
    """The compatibility table. A release without a row is unknown, never ok."""

    sources: dict[fields.Name, RowSource]
    rows: tuple[Row, ...] = Field(min_length=1)
    compatible: tuple[Compatible, ...] = ()
    deny: tuple[Denied, ...] = ()
    # Distributions that must not be installed together.
    exclusive: tuple[tuple[fields.Text, ...], ...] = ()
    env: tuple[EnvRule, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, tuple[Row, ...]]:
        """Normalised name → the rows of its releases, in the table's order."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.name, []).append(row)
        return {name: tuple(rows) for name, rows in found.items()}

    @cached_property
    def by_release(self) -> dict[tuple[str, Version], tuple[Row, ...]]:
        """(Normalised name, version) → the rows of that release, in the table's order."""
        found: dict[tuple[str, Version], list[Row]] = {}
        for row in self.rows:
            found.setdefault((row.name, public_version(row.version)), []).append(row)
        return {release: tuple(rows) for release, rows in found.items()}

    def rows_of(self, name: str, version: str) -> tuple[Row, ...]:
        """Return the rows of a release, in the table's order. The local part of a version does not count."""
        return self.by_release.get((name, public_version(version)), ()) if version else ()

    @cached_property
    def key_sets(self) -> dict[str, tuple[frozenset[str], ...]]:
        """Normalised name → the keys of each of its rows, equal sets once."""
        return {name: (*dict.fromkeys(frozenset(row.fits) for row in rows),) for name, rows in self.by_name.items()}

    @cached_property
    def followed(self) -> dict[str, tuple[str, ...]]:
        """Normalised name → the distributions that have the same version number as its releases in every row.

        torch_npu X.Y.Z extends torch X.Y.Z, and only works with that release.
        """
        found: dict[str, tuple[str, ...]] = {}
        for name, rows in self.by_name.items():
            others = {CANN, PYTHON, DRIVER}
            for row in rows:
                base = parsed_version(row.version).base_version
                others |= {key for key, fit in row.fits.items() if fit != base}
            found[name] = tuple(dict.fromkeys(key for row in rows for key in row.fits if key not in others))
        return found

    def denied(self, sources: Iterable[str]) -> tuple[Denied, ...]:
        """Return the rules in `deny` for a set that builds the distributions `sources` from source."""
        built = {*sources}
        return tuple(one for one in self.deny if not (one.wheel and one.pattern in built))

    def facts(self, torch_npu: Collection[str]) -> dict[str, list[Any]]:
        """Return the facts for an image's manifest, which verify uses.

        They are the denied and the exclusive distributions, and the CANN versions for the image's releases of
        `torch_npu`. verify names those if NNAL is too old.
        """
        rows = [row for row in self.by_name.get("torch-npu", ()) if row.version in torch_npu]
        return {
            "deny": sorted(one.pattern for one in self.deny if not one.wheel),
            "exclusive": [list(names) for names in self.exclusive],
            "torch_npu_cann": sorted({row.fits[CANN] for row in rows if CANN in row.fits}),
        }

    @model_validator(mode="after")
    def _sources_exist(self) -> Self:
        _check_sources("rows", (row.source for row in self.rows), self.sources)
        _check_sources("compatible", (item.source for item in self.compatible), self.sources)
        return self

    def over(self, other: Self) -> Self:
        """Return this table merged over `other`. If a release has rows here, the rows of `other` are dropped.

        Raises `FaultError` if both use one name for different sources.
        """
        for name, source in self.sources.items():
            if other.sources.get(name, source) != source:
                what = "the built-in table has another source of this name"
                raise FaultError(what, "give this one a name of its own", ("sources", name))
        mine = {(row.name, row.version) for row in self.rows}
        lists = ("compatible", "deny", "exclusive", "env")
        both = {name: (*getattr(self, name), *getattr(other, name)) for name in lists}
        rows = (*self.rows, *(row for row in other.rows if (row.name, row.version) not in mine))
        return self.model_copy(update={**both, "rows": rows, "sources": {**other.sources, **self.sources}})

    def compatible_with(self, name: str, matched: str, cann: str) -> Compatible | None:
        """Return the statement that a release of `name` for CANN `matched` also works with `cann`, or None."""
        wanted = {series_of(matched), series_of(cann)}
        return next((item for item in self.compatible if item.of == name and wanted <= {*item.cann}), None)


class DriverRow(Closed):
    """The driver series that work with a CANN version, by its makers. `whole`: no other series works."""

    cann: fields.CannText
    series: tuple[fields.SeriesText, ...] = Field(min_length=1)
    source: fields.Text
    whole: bool = False


class DriverReport(Closed):
    """A pair of CANN and driver series that somebody reported as not working."""

    cann: tuple[fields.CannText, ...] = Field(min_length=1)
    series: fields.SeriesText
    what: fields.Text
    source: fields.Text


class Drivers(Closed):
    """images/drivers.yaml. A pair that is not in the file is unknown, never ok."""

    sources: dict[fields.Name, DriverSource] = Field(default_factory=dict)
    drivers: tuple[DriverRow, ...] = ()
    reports: tuple[DriverReport, ...] = ()
    pci: dict[fields.PciText, fields.ChipText] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sources_exist(self) -> Self:
        _check_sources("drivers", (row.source for row in self.drivers), self.sources)
        return self

    def of(self, cann: str) -> tuple[DriverRow, ...]:
        """Return the rows of a CANN version (without build)."""
        return tuple(row for row in self.drivers if row.cann == cann)

    def fitting(self, series: str) -> tuple[str, ...]:
        """Return the CANN versions that work with a driver of `series`, in the file's order."""
        return tuple(dict.fromkeys(row.cann for row in self.drivers if series in row.series))


def series_key(series: str) -> list[int]:
    """Return a key that sorts series, the oldest first."""
    return [int(part) for part in series.split(".")]
