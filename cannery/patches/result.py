"""What a patch set does to a tree, as values, and what is to be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.patches.apply import FileResult, HunkResult, Outcome
from cannery.patches.problem import Problem, file_problems
from cannery.patches.values import Change, PatchFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.patches.sets import PatchSet


@dataclass(frozen=True)
class PatchResult:
    """One patch file's results, a file each; `changed` are the paths whose bytes or modes it changes.

    `rewritten` are those whose bytes it changes. A mode that is set may be the file's own: a tree is read without them.
    """

    patch: PatchFile
    files: tuple[FileResult, ...]
    changed: tuple[str, ...]
    rewritten: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all of it fits."""
        return all(result.ok for result in self.files)

    @property
    def already(self) -> bool:
        """Whether the tree has all of it; modes, which are not known of it, do not count."""
        known = [one for one in self.files if one.patch.hunks or one.patch.change is not Change.MODIFIED]
        return bool(known) and all(result.already for result in known)


@dataclass(frozen=True)
class SetResult:
    """What a set does to a tree: of each path it touches the bytes `before` and after (`contents`); None is no file.

    `modes` are git's modes that it sets, of paths that exist after it. `notes` say what went well but not as written:
    repaired patches, hunks with offset or fuzz, hunks that the tree has already.
    """

    set: PatchSet
    results: tuple[PatchResult, ...]
    contents: Mapping[str, bytes | None]
    before: Mapping[str, bytes | None]
    modes: Mapping[str, str]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the whole set is applied, and each patch of it changes something, as far as texts can tell."""
        return not self.problems


def problems_of(result: PatchResult) -> list[Problem]:
    """Return what is wrong with a patch on a tree; one that changes nothing is wrong as well."""
    name = result.patch.name
    found = [problem for file in result.files for problem in file_problems(name, file)]
    if found or result.changed:
        return found
    if result.already:
        hint = "it is in this commit: leave the patch out of its set"
        return [Problem(name, _paths(result), "changes nothing: already in the tree", hint=hint)]
    return [Problem(name, _paths(result), "changes nothing", hint="leave the patch out of its set")]


def _paths(result: PatchResult) -> str:
    return ", ".join(dict.fromkeys(file.patch.path for file in result.files))


def notes_of(result: PatchResult) -> list[str]:
    """Return what the user should know of a patch that fits."""
    where = f"{result.patch.name}.patch"
    notes = [f"{where}: {note}" for note in result.patch.notes]
    for file in result.files:
        start = f"{where}: {file.patch.path}"
        notes += [f"{start}: {file.note}"] if file.note else []
        for hunk in file.hunks:
            # That a whole patch is in the tree is a problem, and told as one.
            told = "" if hunk.outcome is Outcome.ALREADY and result.already else _told(hunk)
            notes += [f"{start}: hunk {hunk.hunk.number} {told}"] if told else []
    return notes


def _told(result: HunkResult) -> str:
    if result.outcome is Outcome.ALREADY:
        return f"is in the tree already, at line {result.line}"
    if result.outcome is Outcome.CONFLICT or not (result.fuzz or result.offset):
        return ""
    fuzz = f" with fuzz {result.fuzz}" if result.fuzz else ""
    offset = f", {result.offset:+} from where its header says" if result.offset else ""
    return f"goes to line {result.line}{fuzz}{offset}"
