"""Hunks of a patch file, read by the counts of their headers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from cannery.errors import FindingsError

HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)", re.DOTALL)


class PatchError(FindingsError):
    """A patch file that cannot be read, or must not be applied."""


@dataclass(frozen=True)
class HunkLine:
    """A line of a hunk: its sign (`-`, `+` or a blank) and its text with its own line end, if it has one."""

    sign: str
    text: bytes


@dataclass(frozen=True)
class Hunk:
    """One hunk: starts and counts as its header says them, `section` what stands behind the second `@@`.

    `missing` is the number of context lines at its end that the header counts and the patch file has lost.
    `line_number` is the header's, in the patch file.
    """

    number: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[HunkLine, ...] = field(repr=False)
    line_number: int = 0
    section: str = ""
    missing: int = 0

    @property
    def header(self) -> str:
        """The header line, counts spelt out."""
        place = f"@@ -{self.old_start},{self.old_count} +{self.new_start},{self.new_count} @@"
        return f"{place} {self.section}".rstrip()

    @cached_property
    def old(self) -> tuple[bytes, ...]:
        """The lines that it expects."""
        return tuple(line.text for line in self.lines if line.sign != "+")

    @cached_property
    def new(self) -> tuple[bytes, ...]:
        """The lines that it leaves."""
        return tuple(line.text for line in self.lines if line.sign != "-")

    @property
    def changes_nothing(self) -> bool:
        """Whether both sides are equal."""
        return self.old == self.new

    @cached_property
    def prefix(self) -> int:
        """Number of context lines before its first change."""
        return next((index for index, line in enumerate(self.lines) if line.sign != " "), len(self.lines))

    @cached_property
    def suffix(self) -> int:
        """Number of context lines behind its last change, lost ones among them."""
        behind = reversed(self.lines)
        return next((index for index, line in enumerate(behind) if line.sign != " "), len(self.lines)) + self.missing


@dataclass(frozen=True)
class Source:
    """A patch file's lines with their ends."""

    name: str
    lines: tuple[bytes, ...]

    @classmethod
    def of(cls, name: str, data: bytes) -> Source:
        """Split `data` at line feeds only: form feeds and carriage returns are text."""
        *lines, rest = data.split(b"\n")
        return cls(name, (*(line + b"\n" for line in lines), *((rest,) if rest else ())))

    def text(self, index: int) -> bytes:
        """Return a line without its end; b"" behind the last."""
        return self.lines[index].rstrip(b"\n").removesuffix(b"\r") if index < len(self.lines) else b""

    def error(self, index: int, what: str, hint: str = "") -> PatchError:
        """Return the error of the line at `index` (from 0)."""
        return PatchError(what, where=f"{self.name}.patch:{min(index + 1, len(self.lines))}", hint=hint)


def read_hunk(source: Source, start: int, number: int, *, crlf: bool) -> tuple[Hunk, int, list[str]]:
    """Read the hunk whose header is at `start`; return it, the index of the line behind it, and notes of repairs.

    A hunk at the end of the file without its last context line is taken as it is, with a note. Raises PatchError.
    """
    found = HUNK.fullmatch(source.text(start))
    if not found:
        raise source.error(start, "no hunk header")
    old_start, old_count, new_start, new_count = (1 if part is None else int(part) for part in found.groups()[:4])
    lines, index, missing = _body(source, start, number, (old_count, new_count), crlf=crlf)
    notes = [f"hunk {number} ends without its last context line"] if missing else []
    if not source.lines[index - 1].endswith(b"\n") and lines[-1].text == source.lines[index - 1][1:]:
        # Nobody knows how that line went on: as of GNU patch, it fits a file's line without an end, or needs fuzz.
        notes.append(
            f"the patch file ends within the last line of hunk {number}, which is read as one without a line end"
        )
    hunk = Hunk(
        number=number,
        old_start=old_start,
        old_count=old_count,
        new_start=new_start,
        new_count=new_count,
        lines=tuple(lines),
        line_number=start + 1,
        section=found[5].strip().decode(errors="replace"),
        missing=missing,
    )
    _check_ends(source, hunk)
    _check_surplus(source, index, hunk)
    return hunk, index, notes


def _body(
    source: Source, start: int, number: int, counts: tuple[int, int], *, crlf: bool
) -> tuple[list[HunkLine], int, int]:
    """Return the lines, the index behind them, and how many context lines are missing."""
    lines: list[HunkLine] = []
    old, new = counts
    index = start + 1
    while index < len(source.lines):
        line = _line(source.lines[index])
        if line is None or (line.sign != "\\" and not (old or new)):
            break
        if line.sign == "\\":
            if not lines:
                raise source.error(index, f"hunk {number} begins with `{source.text(index).decode(errors='replace')}`")
            lines[-1] = HunkLine(lines[-1].sign, _without_end(lines[-1].text, crlf=crlf))
        else:
            lines.append(line)
            old -= line.sign != "+"
            new -= line.sign != "-"
        if old < 0 or new < 0:
            raise source.error(index, f"{_said(number, counts)}, and another one of them follows", _EDITED)
        index += 1
    # The last line of context is lost where an editor or a mail cuts blank lines off.
    if old == new == 1 and index == len(source.lines) and counts != (1, 1):
        return lines, index, 1
    if old or new:
        raise source.error(start, f"{_said(number, counts)}, and {old} old and {new} new ones are missing", _EDITED)
    return lines, index, 0


_EDITED = "make the patch again with `git diff`; who edits a hunk by hand must put its header's counts right too"


def _said(number: int, counts: tuple[int, int]) -> str:
    return f"hunk {number} is malformed: its header says {counts[0]} old and {counts[1]} new lines"


def _line(raw: bytes) -> HunkLine | None:
    r"""Return the line with its sign, `\` for the mark of a missing line end; None for what is no line of a hunk."""
    if raw in {b"\n", b"\r\n"}:
        return HunkLine(" ", raw)  # an editor took the blank off an empty context line
    sign = raw[:1]
    return HunkLine(sign.decode(), raw[1:]) if sign in {b"-", b"+", b" ", b"\\"} else None


def _without_end(text: bytes, *, crlf: bool) -> bytes:
    return text.removesuffix(b"\n").removesuffix(b"\r") if crlf else text.removesuffix(b"\n")


def _check_ends(source: Source, hunk: Hunk) -> None:
    """Raise PatchError where a line without an end is not the last of its side."""
    for side in (hunk.old, hunk.new):
        if any(not text.endswith(b"\n") for text in side[:-1]):
            what = f"hunk {hunk.number} says `No newline at end of file` of a line that is not its last"
            raise source.error(hunk.line_number - 1, what)


def _check_surplus(source: Source, index: int, hunk: Hunk) -> None:
    """Raise PatchError where lines of a hunk stand behind one that is complete: `patch` would pass over them."""
    line, after = source.text(index), source.text(index + 1)
    is_signature = line.rstrip() == b"--"
    is_header = line.startswith(b"--- ") and after.startswith(b"+++ ")
    if line.strip() and line[:1] in {b"-", b"+", b" "} and not is_signature and not is_header:
        counts = (hunk.old_count, hunk.new_count)
        raise source.error(index, f"{_said(hunk.number, counts)}, and more follow", _EDITED)
