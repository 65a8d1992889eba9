"""A patch set tried on another revision: what became of each patch, in words and as JSON."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.patches.result import PatchResult
    from cannery.patches.sets import PatchSet


@dataclass(frozen=True)
class Ported:
    """What became of one patch on another tree; `is_merged`: it did not fit as it is, and git merged it."""

    result: PatchResult
    is_merged: bool = False

    @property
    def verdict(self) -> str:
        """The outcome as a whole."""
        if not self.result.ok:
            return "does not apply"
        if self.result.already:
            return "is there already"
        if self.is_merged:
            return "applies, merged with what changed upstream"
        return "applies, at other lines" if self.result.notes else "applies"


def port_lines(one: Ported) -> Iterator[str]:
    """Give the lines about one patch: its verdict, hunks that go to other lines, and both sides of conflicts."""
    yield f"{one.result.patch.name}: {one.verdict}"
    yield from (f"  {note}" for note in one.result.notes)
    for problem in one.result.problems:
        yield f"  {problem.path}: {problem.what}"
        yield from (f"      {line}" for line in problem.lines)


def port_verdict(results: Sequence[Ported]) -> str:
    """Return in a line how many patches of a set apply, how many the tree has already, and the names of the others."""
    there = sum(one.result.already for one in results)
    failed = [one.result.patch.name for one in results if not one.result.ok]
    words = [f"{len(results) - there - len(failed)} of {len(results)} can be applied"]
    words += [f"{there} in the tree already"] * bool(there)
    words += [f"{len(failed)} with conflicts ({', '.join(failed)})"] * bool(failed)
    return ", ".join(words)


def port_value(one: Ported, origin: str) -> dict[str, Any]:
    """Return the same for JSON; `origin` is where the patch's set is kept."""
    return {
        "patch": one.result.patch.name,
        "origin": origin,
        "result": one.verdict,
        "files": [change.path for change in one.result.changes],
        "notes": one.result.notes,
        "problems": [asdict(problem) for problem in one.result.problems],
    }


def origin_folders(sets: Sequence[PatchSet]) -> tuple[str, ...]:
    """Return below which folder each set is written: "" for a single one, else a name made of its origin.

    Sets of one repo and commit cannot share a folder of sets: patches of the same name would meet.
    """
    if len(sets) == 1:
        return ("",)
    return tuple(re.sub(r"[^\w.]+", "-", one.keeper) for one in sets)
