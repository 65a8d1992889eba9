"""A patch set tried on another revision: what became of each hunk, in words, and the set as it would be made there."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from cannery.patches.apply import Outcome
from cannery.patches.set_apply import Layered, apply_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cannery.patches.apply import FileResult, HunkResult
    from cannery.patches.result import PatchResult, SetResult
    from cannery.patches.sets import PatchSet

# Lines of each side of a conflict that are shown, and their width.
SHOWN_LINES = 12
WIDTH = 100
# The mode of a file that nobody may execute.
PLAIN = "100644"
# Git's modes of a file before and after; None: not known, or no file.
Modes = tuple[str | None, str | None]
# Between a plugin and its commit in the origin of a set.
AT = " at "
NO_NEWLINE = b"\\ No newline at end of file\n"


def port_lines(name: str, results: Sequence[FileResult]) -> Iterator[str]:
    """Give the lines about one patch: its files, a line a hunk, and both sides of a conflict."""
    yield f"{name}: {verdict(results)}"
    for result in results:
        yield f"  {result.patch.path}{f': {result.problem}' if result.problem else ''}"
        for hunk in result.hunks:
            yield f"    hunk {hunk.hunk.number} ({hunk.hunk.header}): {hunk_words(hunk)}"
            if hunk.outcome is Outcome.CONFLICT:
                yield from _sides(hunk)


def verdict(results: Sequence[FileResult]) -> str:
    """Say what became of a patch as a whole."""
    if all(result.already for result in results):
        return "is there already"
    if not all(result.ok for result in results):
        return "does not apply"
    outcomes = {hunk.outcome for result in results for hunk in result.hunks}
    for outcome, words in (
        (Outcome.FUZZ, "applies with fuzz"),
        (Outcome.ALREADY, "applies; a part of it is there already"),
        (Outcome.OFFSET, "applies, at other lines"),
    ):
        if outcome in outcomes:
            return words
    return "applies"


def port_verdict(results: Sequence[PatchResult]) -> str:
    """Say in a line how many patches of a set apply, how many the tree has already, and the names of the others."""
    there = [one for one in results if one.already]
    failed = [one.patch.name for one in results if not one.ok and not one.already]
    applied = len(results) - len(there) - len(failed)
    words = f"{applied} of {len(results)} {'applies' if applied == 1 else 'apply'}"
    if there:
        words += f", {len(there)} {'is' if len(there) == 1 else 'are'} there already"
    return words + (
        f"; {len(failed)} {'does' if len(failed) == 1 else 'do'} not: {', '.join(failed)}" if failed else ""
    )


def hunk_words(result: HunkResult) -> str:
    """Say what became of a hunk."""
    match result.outcome:
        case Outcome.APPLIES:
            return "applies"
        case Outcome.OFFSET:
            return f"applies at line {result.line}, {_moved(result.offset)}"
        case Outcome.FUZZ:
            return f"applies at line {result.line} with fuzz {result.fuzz}"
        case Outcome.ALREADY:
            return "already upstream"
        case Outcome.CONFLICT:
            fuzz = f"; with fuzz {result.needs_fuzz} it would apply" if result.needs_fuzz else ""
            return f"conflict at line {result.found_line or 1}{fuzz}"


def port_value(name: str, origin: str, results: Sequence[FileResult]) -> dict[str, Any]:
    """Return the same as JSON values; `origin` is where the patch's set is kept."""
    return {
        "patch": name,
        "origin": origin,
        "result": verdict(results),
        "files": [
            {
                "path": result.patch.path,
                "problem": result.problem,
                "hunks": [
                    {
                        "number": hunk.hunk.number,
                        "header": hunk.hunk.header,
                        "outcome": hunk.outcome.name.lower(),
                        "line": hunk.line,
                        "offset": hunk.offset,
                        "fuzz": hunk.fuzz,
                        "expected": [_text(line) for line in hunk.expected],
                        "found": [_text(line) for line in hunk.found],
                    }
                    for hunk in result.hunks
                ],
            }
            for result in results
        ],
    }


def patch_modes(results: Iterable[FileResult]) -> dict[str, Modes]:
    """Return {path: (git's mode before, after)} of what a patch's parts say; None is one that they do not."""
    found: dict[str, Modes] = {}
    for patch in (result.patch for result in results if not result.already):
        if patch.old_path:
            found.setdefault(patch.old_path, (patch.old_mode, None))
        if patch.new_path:
            was, becomes = found.get(patch.new_path, (None, None))
            found[patch.new_path] = (was, patch.new_mode or becomes)
    return found


def tried_in_turn(sets: Iterable[PatchSet], read: Callable[[str], bytes | None]) -> tuple[SetResult, ...]:
    """Apply sets as a build does, each to what those before it left; `read` gives the tree's files.

    Of a plugin's several revisions an image has one: each is tried on the tree as it is.
    """
    tree = Layered(read)
    results: list[SetResult] = []
    for one in sets:
        plugin, is_plugin, _ = one.origin.partition(AT)
        if is_plugin and results and results[-1].set.origin.startswith(plugin + AT):
            tree.changed.clear()
        results.append(apply_set(one, tree.read, anywhere=True))
        tree.changed |= results[-1].contents
    return tuple(results)


def origin_folders(sets: Sequence[PatchSet]) -> tuple[str, ...]:
    """Return below which folder each set is written: "" for a single one, else a name made of its origin.

    Sets of one repo and commit cannot share a folder of sets: patches of the same name would meet.
    """
    if len(sets) == 1:
        return ("",)
    return tuple(re.sub(r"[^\w.]+", "-", one.keeper) for one in sets)


def made_patch(files: Mapping[str, tuple[bytes | None, bytes | None]], modes: Mapping[str, Modes]) -> bytes:
    """Return a patch as git writes it, of {path: (before, after)}; None is a file that is not there.

    `modes` are as of `patch_modes`; a file that is new or gone and has none is a plain one (100644).
    """
    made = (
        _made(path, before, after, modes.get(path, (None, None))) for path, (before, after) in sorted(files.items())
    )
    return b"".join(made)


def _made(path: str, before: bytes | None, after: bytes | None, modes: Modes) -> bytes:
    """Return the part of one file; b"" where neither its text nor its mode changes."""
    was, becomes = modes
    head = f"diff --git a/{path} b/{path}\n"
    if before is None:
        head += f"new file mode {becomes or PLAIN}\n"
    elif after is None:
        head += f"deleted file mode {was or PLAIN}\n"
    elif was and becomes and was != becomes:
        head += f"old mode {was}\nnew mode {becomes}\n"
    elif before == after:
        return b""
    if (before or b"") == (after or b""):
        return b"" if before is after is None else head.encode()
    old = "/dev/null" if before is None else f"a/{path}"
    new = "/dev/null" if after is None else f"b/{path}"
    lines = difflib.diff_bytes(
        difflib.unified_diff, _split(before), _split(after), old.encode(), new.encode(), lineterm=b"\n"
    )
    return head.encode() + b"".join(line if line.endswith(b"\n") else line + b"\n" + NO_NEWLINE for line in lines)


def _split(data: bytes | None) -> list[bytes]:
    """Lines that end at a line feed alone, with it."""
    *lines, rest = (data or b"").split(b"\n")
    return [*(line + b"\n" for line in lines), *([rest] if rest else [])]


def _moved(offset: int) -> str:
    lines = f"{abs(offset)} line{'' if abs(offset) == 1 else 's'}"
    return f"{lines} further {'down' if offset > 0 else 'up'}"


def _sides(result: HunkResult) -> Iterator[str]:
    """Give both sides of a conflict, the lines that differ marked."""
    expected, found = [_text(line) for line in result.expected], [_text(line) for line in result.found]
    for title, lines, other in (("the patch expects", expected, found), ("the tree has", found, expected)):
        yield f"      {title}:"
        for line in lines[:SHOWN_LINES]:
            yield f"        {' ' if line in other else '!'} {line[:WIDTH]}"
        if len(lines) > SHOWN_LINES:
            yield f"          … and {len(lines) - SHOWN_LINES} more lines"
        if not lines:
            yield "          (nothing)"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")
