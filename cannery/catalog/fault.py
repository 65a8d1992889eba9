"""What is wrong in a file of the catalog: raised by validators, told as one `CatalogError` without secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = "***"
# The user part of a URL, and what looks like one without its scheme (`user:password@host`): up to the last @ of the
# line, since passwords hold every character that ends a host.
_USERINFO = re.compile(r"(?<=://).*@|(?<![\w.+%-])[\w.+%-]+:(?![\s/]).*@")
# A message longer than this quotes something that is no word.
LONGEST = 1200
FALLBACK = "docs/profiles.md explains the fields of profiles and components; elsewhere the other entries show the form"


class FaultError(ValueError):
    """What a validator finds wrong: `what`, `hint` (what to do; perhaps ""), `path`: where below what is validated.

    Pydantic collects ValueErrors, and keeps them (`ctx`) for `cannery.catalog.errors`.
    """

    def __init__(self, what: str, hint: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint
        self.path = path


class CatalogError(UsageError):
    """A broken catalog; `parts` are all problems of it, in the order in which the files are read.

    A single problem is the error itself; of several, `what` lists them, a line each with its file and line.
    """

    def __init__(self, parts: Sequence[UsageError]) -> None:
        if len(parts) == 1:
            super().__init__(parts[0].what, where=parts[0].where, hint=parts[0].hint or FALLBACK)
        else:
            lines = "\n".join(as_line(part) for part in parts)
            hint = "mend them from the top: one may be the cause of others"
            super().__init__(f"{len(parts)} problems\n{lines}", where="images/", hint=hint)
        self.parts = tuple(parts)


def problem(where: str, what: str, hint: str = "") -> UsageError:
    """Return a part of a `CatalogError`: without user names and passwords, and no longer than can be read."""
    return UsageError(_told(what), where=where, hint=_told(hint))


def split_problem(where: str, text: str) -> UsageError:
    """Return a problem from a text of the form `what; hint`."""
    what, _, hint = text.partition("; ")
    return problem(where, what, hint)


def as_line(part: UsageError) -> str:
    """Return a problem as one line."""
    return f"{part.where}: {part.what}" + (f"; {part.hint}" if part.hint else "")


def without_secrets(text: str) -> str:
    """Return `text` with the user parts of URLs masked. Too much may go, never too little."""
    return _USERINFO.sub(f"{MASK}@", text) if "@" in text else text


def _told(text: str) -> str:
    told = without_secrets(text)
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}…"
