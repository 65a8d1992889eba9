"""What differs between an image and a profile, by how soon it breaks something."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(StrEnum):
    """Kinds of differences, the heaviest first. Those from `LEFTOVER` on do not make an image another one."""

    BREAKS = "breaks first"
    SOURCE = "source"
    PATCH = "patch"
    MISSING = "missing"
    VERSION = "version"
    ENVIRONMENT = "environment"
    LEFTOVER = "left over"
    NOTE = "note"

    @property
    def matters(self) -> bool:
        """Whether an image that differs so is another one than the profile's."""
        return self not in {Kind.LEFTOVER, Kind.NOTE}


@dataclass(frozen=True)
class Difference:
    """One difference: what it is about, what the profile wants ("" where it wants nothing), what is there, and more."""

    kind: Kind
    subject: str
    wanted: str
    found: str
    note: str = ""

    def __str__(self) -> str:
        text = (
            f"{self.found or 'not there'}" if not self.wanted else f"{self.found or 'not there'}, wanted: {self.wanted}"
        )
        return f"{self.subject}: {text}" + (f" ({self.note})" if self.note else "")


def in_order(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Return differences by weight, then in the order given."""
    kinds = list(Kind)
    return tuple(sorted(differences, key=lambda one: kinds.index(one.kind)))
