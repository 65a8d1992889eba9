"""A patch set tried on another revision: what became of each patch, in words and as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.patches.result import Offset, PatchResult
    from cannery.patches.sets import PatchSet

# Between a plugin and its commit in the origin of a set.
AT = " at "


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
        return "applies, at other lines" if self.result.offsets else "applies"


def port_lines(one: Ported) -> Iterator[str]:
    """Give the lines about one patch: its verdict, hunks that go to other lines, and both sides of conflicts."""
    yield f"{one.result.patch.name}: {one.verdict}"
    for moved in one.result.offsets:
        yield f"  {moved.path}: hunk {moved.number} applies at line {moved.line}, {_moved(moved)}"
    for problem in one.result.problems:
        hunk = f"hunk {problem.hunk.number} ({problem.hunk.header}): " if problem.hunk else ""
        yield f"  {problem.path}: {hunk}{problem.what}"
        yield from (f"      {line}" for line in problem.sides)


def port_verdict(results: Sequence[Ported]) -> str:
    """Return in a line how many patches of a set apply, how many the tree has already, and the names of the others."""
    there = sum(one.result.already for one in results)
    failed = [one.result.patch.name for one in results if not one.result.ok]
    applied = len(results) - there - len(failed)
    words = f"{applied} of {len(results)} {'applies' if applied == 1 else 'apply'}"
    if there:
        words += f", {there} {'is' if there == 1 else 'are'} there already"
    return words + (
        f"; {len(failed)} {'does' if len(failed) == 1 else 'do'} not: {', '.join(failed)}" if failed else ""
    )


def port_value(one: Ported, origin: str) -> dict[str, Any]:
    """Return the same for JSON; `origin` is where the patch's set is kept."""
    result = one.result
    paths = dict.fromkeys([*(one.path for one in result.changes), *(one.path for one in result.problems)])
    return {
        "patch": result.patch.name,
        "origin": origin,
        "result": one.verdict,
        "files": [
            {
                "path": path,
                "problem": "; ".join(problem.what for problem in result.problems if problem.path == path),
                "hunks": [*_hunks(result, path)],
            }
            for path in paths
        ],
    }


def _hunks(result: PatchResult, path: str) -> Iterator[dict[str, Any]]:
    """Give the hunks of a file that go to other lines, and its conflicts."""
    for moved in result.offsets:
        if moved.path == path:
            yield {"number": moved.number, "outcome": "offset", "line": moved.line, "offset": moved.lines}
    for problem in result.problems:
        if problem.path == path and problem.sides:
            number = problem.hunk.number if problem.hunk else None
            yield {"number": number, "outcome": "conflict", "sides": list(problem.sides)}


def origin_folders(sets: Sequence[PatchSet]) -> tuple[str, ...]:
    """Return below which folder each set is written: "" for a single one, else a name made of its origin.

    Sets of one repo and commit cannot share a folder of sets: patches of the same name would meet.
    """
    if len(sets) == 1:
        return ("",)
    return tuple(re.sub(r"[^\w.]+", "-", one.keeper) for one in sets)


def _moved(one: Offset) -> str:
    lines = f"{abs(one.lines)} line{'' if abs(one.lines) == 1 else 's'}"
    return f"{lines} further {'down' if one.lines > 0 else 'up'}"
