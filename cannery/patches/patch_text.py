"""A patch file as values: unified diffs of git and of `diff -u`, read as they are or refused with the line."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from cannery.patches.patch_header import Header, read_header, without_hunks
from cannery.patches.patch_hunk import HUNK, Hunk, PatchError, Source, read_hunk
from cannery.patches.values import Change, FilePatch, PatchFile

_BINARY = re.compile(rb"GIT binary patch|Binary files .+ and .+ differ")
_COMBINED = re.compile(rb"diff --(cc|combined) |@@@+ -")
_CONTEXT_DIFF = re.compile(rb"\*{15}")


def parse_patch(name: str, data: bytes) -> PatchFile:
    """Read the patch file `name` (without `.patch`). Raises PatchError for what cannot be applied as it is meant."""
    source = Source.of(name, data)
    if not data.strip():
        raise PatchError("the patch is empty", where=f"{name}.patch", hint="make it again, or take the file away")
    files: list[FilePatch] = []
    notes: list[str] = []
    index = 0
    while index < len(source.lines):
        header = read_header(source, index)
        if header is None:
            _refuse(source, index)
            index += 1
            continue
        found, index, more = _file(source, header)
        files.append(found)
        notes += more
    if not files:
        what = "a context diff" if any(map(_CONTEXT_DIFF.match, source.lines)) else "no diff"
        hint = "write it with `git diff` or `diff -u`"
        raise PatchError(f"it holds {what}, and a unified one is needed", where=f"{name}.patch", hint=hint)
    return PatchFile(name, tuple(files), hashlib.sha256(data).hexdigest(), tuple(notes))


def _file(source: Source, header: Header) -> tuple[FilePatch, int, list[str]]:
    """Return the file's part, the index of the first line behind it, and notes."""
    if _BINARY.fullmatch(source.text(header.end)):
        _refuse(source, header.end)
    crlf = source.lines[header.end - 1].endswith(b"\r\n")
    hunks: list[Hunk] = []
    notes: list[str] = []
    found = without_hunks(source, header, crlf=crlf)
    index = header.end
    while HUNK.match(source.text(index)):
        hunk, index, more = read_hunk(source, index, len(hunks) + 1, crlf=crlf)
        hunks.append(hunk)
        notes += [f"{found.path}: {note}" for note in more]
    found = _checked(source, header, replace(found, hunks=tuple(hunks)))
    return found, index, notes


def _refuse(source: Source, index: int) -> None:
    """Raise for a line outside of hunks that no unified diff of texts has."""
    line = source.text(index)
    if _BINARY.fullmatch(line):
        hint = "patches are for text files; make the patch without this file"
        raise source.error(index, "it changes a binary file", hint)
    if _COMBINED.match(line):
        hint = "write it against one parent: `git diff PARENT COMMIT`"
        raise source.error(index, "it is a combined diff (of a merge), which has no one side before", hint)
    if HUNK.match(line):
        raise source.error(index, "a hunk without the `---` and `+++` lines of its file before it")


def _checked(source: Source, header: Header, found: FilePatch) -> FilePatch:
    """Return `found` if its hunks are such as its kind of change has. Raises PatchError."""
    if found.hunks and found.change in {Change.ADDED, Change.DELETED}:
        other = [hunk.old if found.change is Change.ADDED else hunk.new for hunk in found.hunks]
        if len(found.hunks) > 1 or any(other):
            raise source.error(header.start, f"{found.path} is {found.change}, and has lines on both sides")
    if b"--- " in header.fields and not found.hunks:
        raise source.error(header.end, f"no hunk (`@@ -…`) follows the header of {found.path}")
    empty = found.change is Change.MODIFIED and not found.hunks and found.new_mode in {None, found.old_mode}
    if empty:
        raise source.error(header.start, f"the part of {found.path} has no hunk and changes nothing")
    return found
