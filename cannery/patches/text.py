"""The text of a patch file: what is put right before git reads it, and what git would read wrongly."""

from __future__ import annotations

import re

HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
SIDES = re.compile(rb"^--- ([^\t\r\n]+).*\n\+\+\+ ([^\t\r\n]+)", re.MULTILINE)
CRLF_HEADER = re.compile(rb"^\+\+\+ .*\r$", re.MULTILINE)


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


def surplus(text: bytes) -> int | None:
    """Return the line after the first hunk that has more lines than its header counts: git would ignore them."""
    lines = [*text.split(b"\n"), b""]
    at = 0
    while at < len(lines):
        header = HUNK.match(lines[at])
        at += 1
        if header:
            at = _end(lines, at, int(header[2] or 1), int(header[4] or 1))
            line = lines[at]
            is_header = line.startswith(b"--- ") and lines[at + 1].startswith(b"+++ ")
            if line[:1] in {b"+", b"-", b" "} and line.strip() not in {b"", b"--"} and not is_header:
                return at + 1
    return None


def _end(lines: list[bytes], at: int, old: int, new: int) -> int:
    """Return the index after the hunk whose lines start at `at`, as its header counts them."""
    while (old > 0 or new > 0) and at < len(lines) - 1:
        sign = lines[at][:1]
        old -= sign not in {b"+", b"\\"}
        new -= sign not in {b"-", b"\\"}
        at += 1
    return at
