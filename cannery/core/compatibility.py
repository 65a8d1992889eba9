"""images/compatibility.yaml: a table of rows that say what fits what, each with its source and date."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Self

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import Field, field_validator, model_validator

from cannery.core.component import Closed
from cannery.core.errors import UsageError
from cannery.core.fields import DateText, EnvName, ExactText, FitText, Name, PatternText, Text
from cannery.core.markers import package_name
from cannery.core.target import parse_cann
from cannery.core.words import Severity


class Rank(StrEnum):
    """How much a source of rows weighs where two disagree; the first weighs most.

    A release's own metadata wins over its makers' table, and that over a page or an image that shows a set in use.
    """

    METADATA = "metadata"
    TABLE = "table"
    DOCUMENT = "document"


class RowSource(Closed):
    """Where rows were read, and when."""

    what: Text
    rank: Rank
    date: DateText

    def __str__(self) -> str:
        return f"{self.what}, {self.date}"


class Row(Closed):
    """What one release fits: `of` is `NAME==VERSION`, `fits` maps what stands beside it to a version or a range.

    The keys of `fits` are distributions, and `cann`, `python`, `driver`. A version alone means that public version
    (`2.7.1` holds for `2.7.1+cpu`), for `driver` the oldest; a range is a PEP 440 specifier (`>=3.9,<3.12`).
    """

    of: ExactText
    fits: dict[Name, FitText] = Field(min_length=1)
    source: Text
    note: Text = ""

    @field_validator("fits")
    @classmethod
    def _spelt_one_way(cls, value: dict[str, str]) -> dict[str, str]:
        found = {canonicalize_name(name): fit for name, fit in value.items()}
        try:
            return {name: parse_cann(fit) if name == "cann" else fit for name, fit in found.items()}
        except UsageError as error:
            raise ValueError(error.what) from error

    @cached_property
    def name(self) -> str:
        """The normalised name of the release's distribution."""
        return package_name(self.of)

    @cached_property
    def version(self) -> str:
        """The release's version."""
        (specifier,) = Requirement(self.of).specifier
        return specifier.version


class Denied(Closed):
    """A glob of distribution names that must not come into an image, with the reason."""

    pattern: Text
    reason: Text


class EnvRule(Closed):
    """A variable that must not say something beside a distribution.

    `value` is a pattern that the variable must not match; without it the variable has to name the version of `beside`.
    """

    variable: EnvName
    beside: Name
    value: PatternText | None = None
    reason: Text
    severity: Severity = Severity.ERROR


class Compatibility(Closed):
    """The table. A release in no row is unknown, never ok."""

    sources: dict[Name, RowSource]
    rows: tuple[Row, ...] = Field(min_length=1)
    deny: tuple[Denied, ...] = ()
    # Distributions that must not be installed beside each other.
    exclusive: tuple[tuple[Text, ...], ...] = ()
    env: tuple[EnvRule, ...] = ()

    @model_validator(mode="after")
    def _sources_exist(self) -> Self:
        unknown = sorted({row.source for row in self.rows} - {*self.sources})
        if unknown:
            raise ValueError(f"rows name a source that `sources` has not: {', '.join(unknown)}")
        return self
