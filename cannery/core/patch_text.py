"""A patch file as values: unified diffs of git and of `diff -u`, read as they are or refused with the line."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.core.patch_hunk import HUNK, Hunk, HunkLine, PatchError, Source, read_hunk
from cannery.core.patch_path import git_names, header_path, in_tree, is_epoch, plainest, safe, unquoted

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Change", "FilePatch", "Hunk", "HunkLine", "PatchError", "PatchFile", "parse_patch"]


class Change(StrEnum):
    """What a patch does to a file."""

    MODIFIED = "modified"
    ADDED = "added"
    DELETED = "deleted"
    RENAMED = "renamed"
    COPIED = "copied"


@dataclass(frozen=True)
class FilePatch:
    """One file's part of a patch. Paths are below the root of the tree; modes are git's ("100755") where it gives them.

    `crlf`: the patch's own header lines end in CRLF, so that nobody can tell a file's CRLF from the patch file's.
    """

    change: Change
    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...]
    old_mode: str | None = None
    new_mode: str | None = None
    crlf: bool = False

    @property
    def path(self) -> str:
        """The file's path after the patch; of a deleted one, before it."""
        return self.new_path or self.old_path or ""


@dataclass(frozen=True)
class PatchFile:
    """A patch file: its name without `.patch`, sha256 of its bytes, and what was repaired in reading it."""

    name: str
    files: tuple[FilePatch, ...]
    digest: str
    notes: tuple[str, ...] = ()


# Lines that may stand between `diff --git` and the first hunk.
_HEADERS = (
    b"old mode ",
    b"new mode ",
    b"deleted file mode ",
    b"new file mode ",
    b"copy from ",
    b"copy to ",
    b"rename from ",
    b"rename to ",
    b"similarity index ",
    b"dissimilarity index ",
    b"index ",
    b"--- ",
    b"+++ ",
)
_MODES = {b"100644": "100644", b"100664": "100644", b"100755": "100755"}
_LINKS = {b"120000": "a symlink", b"160000": "a submodule"}
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
        header = _header(source, index)
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


@dataclass(frozen=True)
class _Header:
    """The lines before a file's hunks: `fields` by their first words, where they stand, where the hunks begin."""

    git: bytes | None
    fields: Mapping[bytes, bytes]
    start: int
    end: int

    def path(self, word: bytes) -> bytes | None:
        """Path and nothing else of the line that begins with `word`."""
        return header_path(self.fields[word])[0] if word in self.fields else None


def _header(source: Source, index: int) -> _Header | None:
    line = source.text(index)
    if line.startswith(b"diff --git "):
        fields: dict[bytes, bytes] = {}
        end = index + 1
        while b"+++ " not in fields and (word := _word(source.text(end))):
            fields[word] = source.text(end)[len(word) :]
            end += 1
        return _Header(line.removeprefix(b"diff --git "), fields, index, end)
    after = source.text(index + 1)
    if line.startswith(b"--- ") and after.startswith(b"+++ ") and HUNK.match(source.text(index + 2)):
        return _Header(None, {b"--- ": line[4:], b"+++ ": after[4:]}, index, index + 2)
    return None


def _word(line: bytes) -> bytes | None:
    return next((word for word in _HEADERS if line.startswith(word)), None)


def _file(source: Source, header: _Header) -> tuple[FilePatch, int, list[str]]:
    """Return the file's part, the index of the first line behind it, and notes."""
    if _BINARY.fullmatch(source.text(header.end)):
        _refuse(source, header.end)
    crlf = source.lines[header.end - 1].endswith(b"\r\n")
    hunks: list[Hunk] = []
    notes: list[str] = []
    found = _without_hunks(source, header, crlf=crlf)
    index = header.end
    while HUNK.match(source.text(index)):
        hunk, index, more = read_hunk(source, index, len(hunks) + 1, crlf=crlf)
        hunks.append(hunk)
        notes += [f"{found.path}: {note}" for note in more]
    found = _checked(source, header, replace(found, hunks=tuple(hunks)))
    return found, index, notes


def _without_hunks(source: Source, header: _Header, *, crlf: bool) -> FilePatch:
    fields = header.fields
    names = git_names(header.git) if header.git is not None else None
    old, new = header.path(b"--- "), header.path(b"+++ ")
    if old is None or new is None:
        old, new = names or (None, None)
    moved = next(
        (word for word in (b"rename", b"copy") if word + b" from " in fields and word + b" to " in fields), None
    )
    pair: tuple[bytes | None, bytes | None]
    if moved:
        pair = (unquoted(fields[moved + b" from "]), unquoted(fields[moved + b" to "]))
    elif old is None or new is None:
        raise source.error(header.start, "the `diff --git` line does not tell the file's path")
    else:
        pair = in_tree(old, new, names)
    change = _change(source, header, moved, pair)
    old_path, new_path = (None if path is None else _safe(source, header, path) for path in pair)
    if header.git is None and change is Change.MODIFIED and old_path and new_path:
        old_path = new_path = plainest(old_path, new_path)
    return FilePatch(
        change,
        None if change is Change.ADDED else old_path or new_path,
        None if change is Change.DELETED else new_path or old_path,
        (),
        _mode(source, header, b"old mode ", b"deleted file mode "),
        _mode(source, header, b"new mode ", b"new file mode "),
        crlf,
    )


def _change(source: Source, header: _Header, moved: bytes | None, pair: tuple[bytes | None, bytes | None]) -> Change:
    if moved:
        return Change.RENAMED if moved == b"rename" else Change.COPIED
    if pair == (None, None):
        raise source.error(header.start, "both sides are /dev/null")
    # `diff -N` names a file that is not there and dates it 1970.
    hunk = HUNK.match(source.text(header.end)) if header.git is None else None
    absent = [
        hunk is not None and hunk[group] == b"0" and is_epoch(header_path(header.fields[word])[1])
        for word, group in ((b"--- ", 2), (b"+++ ", 4))
    ]
    if pair[0] is None or b"new file mode " in header.fields or absent[0]:
        return Change.ADDED
    if pair[1] is None or b"deleted file mode " in header.fields or absent[1]:
        return Change.DELETED
    return Change.MODIFIED


def _safe(source: Source, header: _Header, path: bytes) -> str:
    try:
        return safe(path)
    except ValueError as error:
        raise source.error(header.start, f"the path {path.decode(errors='replace')!r} {error}") from error


def _mode(source: Source, header: _Header, *words: bytes) -> str | None:
    """Return the mode that one of `words` gives; a mode that is no file's is refused, on the `index` line too."""
    given = [header.fields[word].strip() for word in words if word in header.fields]
    on_index = header.fields.get(b"index ", b"").partition(b" ")[2].strip()
    for mode in (*given, *filter(None, (on_index,))):
        if mode in _LINKS:
            hint = "patches are for plain files; leave this file out of the patch"
            raise source.error(header.start, f"it makes or changes {_LINKS[mode]} (mode {mode.decode()})", hint)
        if mode not in _MODES:
            raise source.error(header.start, f"no mode of a file: {mode.decode(errors='replace')}")
    return _MODES[given[0]] if given else None


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


def _checked(source: Source, header: _Header, found: FilePatch) -> FilePatch:
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
