"""The text of a patch file: what is put right before git reads it, and its hunks, to name them in messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
SIDES = re.compile(rb"^--- ([^\t\r\n]+).*\n\+\+\+ ([^\t\r\n]+)", re.MULTILINE)
CRLF_HEADER = re.compile(rb"^\+\+\+ .*\r$", re.MULTILINE)


@dataclass(frozen=True)
class Hunk:
    """A hunk of one file: its place among the file's hunks, its header, where it starts, and the lines it expects.

    `end` is the line (1-based) of the patch after it.
    """

    number: int
    header: str
    start: int
    old: tuple[bytes, ...] = ()
    end: int = 0


def completed(text: bytes, lost: int) -> bytes:
    """Return the text of a patch that is cut off at its end, such that git reads it.

    `lost` is how many context lines of its last hunk are damaged: 1, its last line has no end; 2, the line after
    that one is lost too.
    """
    headers = list(re.finditer(rb"^" + HUNK.pattern, text, re.MULTILINE))
    if headers and lost > 1:
        old, new = (int(headers[-1][group] or 1) - lost + 1 for group in (2, 4))
        last = headers[-1]
        header = b"@@ -%d,%d +%d,%d @@" % (int(last[1]), old, int(last[3]), new)
        text = text[: last.start()] + header + text[last.end() :]
    return text + b"\n"


def with_line_feeds(text: bytes) -> bytes:
    """Return a patch whose own header lines end in CRLF with line feeds: an editor or a checkout has changed it."""
    return text.replace(b"\r\n", b"\n") if CRLF_HEADER.search(text) else text


def strip_level(text: bytes) -> int:
    """Return how many folders git takes off the paths: none where both sides of each file are the same path.

    That is how git writes them under `diff.noprefix`. Tools that write `a/` on both sides mean it as a prefix.
    """
    sides = [pair for pair in SIDES.findall(text) if b"/dev/null" not in pair]
    return 0 if sides and all(old == new and not old.startswith((b"a/", b"b/")) for old, new in sides) else 1


def hunks_of(text: bytes, path: str) -> tuple[Hunk, ...]:
    """Return the hunks of the file `path` of the tree; () for a path that the patch writes in quotes."""
    return tuple(hunk for name, hunk in _hunks(text) if name == path or name.partition("/")[2] == path)


def surplus(text: bytes) -> tuple[Hunk, int] | None:
    """Return the first hunk that has more lines than its header counts, and where: git would ignore them."""
    lines = [*text.split(b"\n"), b"", b""]
    for _, hunk in _hunks(text):
        line, after = lines[hunk.end - 1 : hunk.end + 1]
        is_header = line.startswith(b"--- ") and after.startswith(b"+++ ")
        if line[:1] in {b"+", b"-", b" "} and line.strip() not in {b"", b"--"} and not is_header:
            return hunk, hunk.end
    return None


def _hunks(text: bytes) -> Iterator[tuple[str, Hunk]]:
    """Give (path as the patch has it, hunk) of every hunk."""
    lines = text.split(b"\n")
    name, number, at = "", 0, 0
    while at < len(lines):
        line = lines[at]
        header = HUNK.match(line)
        at += 1
        if line.startswith((b"--- ", b"+++ ")) and not line.startswith((b"--- /dev/null", b"+++ /dev/null")):
            name, number = line[4:].partition(b"\t")[0].decode(errors="replace").rstrip("\r"), 0
        elif header:
            number += 1
            hunk = Hunk(number, line.decode(errors="replace").rstrip(), int(header[1]))
            old, at = _expected(lines, at, int(header[2] or 1), int(header[4] or 1))
            yield name, replace(hunk, old=old, end=at + 1)


def _expected(lines: list[bytes], at: int, old: int, new: int) -> tuple[tuple[bytes, ...], int]:
    """Return the lines that the hunk whose body starts at `at` expects, and the index after the hunk."""
    found: list[bytes] = []
    while (old > 0 or new > 0) and at < len(lines):
        sign, line = lines[at][:1], lines[at][1:]
        if sign not in {b"+", b"\\"}:
            found.append(line)
            old -= 1
        new -= sign not in {b"-", b"\\"}
        at += 1
    return tuple(found), at
