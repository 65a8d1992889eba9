"""Paths in the headers of a patch: quoted or not, with and without the first folder that `patch -p1` takes off."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import PurePosixPath

NOTHING = b"/dev/null"
# What git writes before a path (with diff.mnemonicPrefix the others), and so no folder of the tree; `./` neither.
_NO_FOLDERS = frozenset((b".", b"a", b"b", b"c", b"i", b"o", b"w"))
# Of these, some tools write one before both paths.
_SAME = frozenset((b".", b"a", b"b"))
# Taken off, they would bring a path into the tree that is outside of it.
_OUTSIDE = frozenset((b"", b".."))
_ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? ?([+-]\d{4})?")


def unquoted(text: bytes) -> bytes:
    r"""Return the path that git or diff wrote as `text`: `"a/\303\251"` is a/é, anything else is itself."""
    found = _QUOTED.fullmatch(text)
    return _ESCAPE.sub(_unescaped, found[1]) if found else text


def header_path(text: bytes) -> tuple[bytes, str]:
    """Return path and time stamp ("" if none) of what follows `--- ` or `+++ `, without its line end."""
    quoted = _QUOTED.match(text)
    path, stamp = (text[: quoted.end()], text[quoted.end() :]) if quoted else text.partition(b"\t")[::2]
    return unquoted(path), stamp.strip().decode(errors="replace")


def is_epoch(stamp: str) -> bool:
    """Whether a time stamp is the start of 1970: by that `diff -N` says that there is no file."""
    found = _STAMP.fullmatch(stamp)
    if not found:
        return False
    try:
        return datetime.strptime(f"{found[1]} {found[2] or '+0000'}", "%Y-%m-%d %H:%M:%S %z").timestamp() == 0
    except ValueError:
        return False


def git_names(text: bytes) -> tuple[bytes, bytes] | None:
    """Return both paths of what follows `diff --git `; None when blanks in them leave open where one ends."""
    quoted = _QUOTED.match(text)
    if quoted:
        return unquoted(quoted[0]), unquoted(text[quoted.end() + 1 :])
    if text.endswith(b'"') and b' "' in text:
        left, _, right = text.partition(b' "')
        return left, unquoted(b'"' + right)
    blanks = [index for index, sign in enumerate(text) if sign == ord(" ")]
    splits = [(text[:index], text[index + 1 :]) for index in blanks]
    same = [(left, right) for left, right in splits if left == right or (_shorter(left) == _shorter(right) != b"")]
    return same[0] if same else splits[0] if len(splits) == 1 else None


def in_tree(old: bytes, new: bytes, names: tuple[bytes, bytes] | None = None) -> tuple[bytes | None, bytes | None]:
    """Return both paths below the root of the tree, None for /dev/null.

    The first folder is taken off where old and new differ in it (`a/x` and `b/x`, `orig/x` and `mine/x`); two equal
    paths are written without such a folder. Where one side is /dev/null, `names` of the `diff --git` line decide.
    """
    pair = (old, new) if NOTHING not in {old, new} else names
    if pair:
        firsts = {_first(path) for path in pair}
        takes_off = (len(firsts) == 2 or firsts <= _SAME) and all(b"/" in path for path in pair)
        takes_off = takes_off and not firsts & _OUTSIDE
    else:
        takes_off = _first(old if new == NOTHING else new) in _NO_FOLDERS
    taken = [None if path == NOTHING else _shorter(path) if takes_off else path for path in (old, new)]
    return taken[0], taken[1]


def plainest(old: str, new: str) -> str:
    """Return of two names of one file the one that is no copy's (`x.py` of `x.py.orig`), as GNU patch chooses."""
    return min((old, new), key=lambda path: (path.count("/"), len(path.rpartition("/")[2]), len(path)))


def safe(path: bytes) -> str:
    """Return `path` as text. Raises ValueError, with words for the user, where it could leave the tree."""
    try:
        text = path.decode()
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    if _CONTROL.search(text):
        raise ValueError("holds a control sign")
    if text.startswith("/"):
        raise ValueError("is absolute, so outside the tree")
    parts = text.split("/")
    if ".." in parts:
        raise ValueError("leads outside the tree")
    if any(part in {"", "."} for part in parts):
        raise ValueError("is no path of a file in the tree")
    if any(part.lower() == ".git" for part in PurePosixPath(text).parts):
        raise ValueError("lies in .git, which is not part of the tree")
    return text


def _unescaped(found: re.Match[bytes]) -> bytes:
    word = found[1]
    return _ESCAPES.get(word) or bytes([int(word, 8)])


def _first(path: bytes) -> bytes:
    return path.partition(b"/")[0]


def _shorter(path: bytes) -> bytes:
    return path.partition(b"/")[2]
