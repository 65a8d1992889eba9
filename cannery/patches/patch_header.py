"""The lines of a patch before a file's first hunk: which file, what becomes of it, with which modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.patches.patch_hunk import HUNK, Source
from cannery.patches.patch_path import git_names, header_path, in_tree, is_epoch, plainest, safe, unquoted
from cannery.patches.values import Change, FilePatch

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(frozen=True)
class Header:
    """The lines before a file's hunks: `fields` by their first words, where they stand, where the hunks begin."""

    git: bytes | None
    fields: Mapping[bytes, bytes]
    start: int
    end: int

    def path(self, word: bytes) -> bytes | None:
        """Path and nothing else of the line that begins with `word`."""
        return header_path(self.fields[word])[0] if word in self.fields else None


def read_header(source: Source, index: int) -> Header | None:
    """Return the header that begins at a line; None where none does."""
    line = source.text(index)
    if line.startswith(b"diff --git "):
        fields: dict[bytes, bytes] = {}
        end = index + 1
        while b"+++ " not in fields and (word := _word(source.text(end))):
            fields[word] = source.text(end)[len(word) :]
            end += 1
        return Header(line.removeprefix(b"diff --git "), fields, index, end)
    after = source.text(index + 1)
    if line.startswith(b"--- ") and after.startswith(b"+++ ") and HUNK.match(source.text(index + 2)):
        return Header(None, {b"--- ": line[4:], b"+++ ": after[4:]}, index, index + 2)
    return None


def _word(line: bytes) -> bytes | None:
    return next((word for word in _HEADERS if line.startswith(word)), None)


def without_hunks(source: Source, header: Header, *, crlf: bool) -> FilePatch:
    """Return what a header says of its file; without its hunks. Raises PatchError for what is no plain file."""
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


def _change(source: Source, header: Header, moved: bytes | None, pair: tuple[bytes | None, bytes | None]) -> Change:
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


def _safe(source: Source, header: Header, path: bytes) -> str:
    try:
        return safe(path)
    except ValueError as error:
        raise source.error(header.start, f"the path {path.decode(errors='replace')!r} {error}") from error


def _mode(source: Source, header: Header, *words: bytes) -> str | None:
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
