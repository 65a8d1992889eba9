"""A step's output: chunks joined to lines, the last ones kept for the error message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_LINES = 50
# A line longer than this many bytes is cut: a program that never writes a newline must not fill the memory.
_LONGEST = 256 * 1024
# Terminal escapes and control characters: they have no place in a file, and would act on the terminal in a message.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b-\x1f\x7f]"
)
# BuildKit's own note when a step printed more than BUILDKIT_STEP_LOG_MAX_SIZE or _SPEED allow.
_CLIPPED = re.compile(r"\[output clipped, log limit (\S+) reached\]")


@dataclass(frozen=True)
class StepLog:
    """`tail`: the last lines; `open`: per stream, the bytes after its last newline."""

    tail: tuple[str, ...] = ()
    open: tuple[tuple[int, bytes], ...] = ()
    lines: int = 0


def add_chunk(log: StepLog, stream: int, data: bytes, redact: Callable[[str], str]) -> tuple[StepLog, tuple[str, ...]]:
    """Return the log with `data` added, and the lines that it completed.

    Streams are joined apart, because stderr comes in between the halves of a line of stdout. A progress bar that
    rewrites its line with carriage returns gives all its states to the file and only the last one to the tail.
    """
    rest = dict(log.open)
    *whole, left = (rest.pop(stream, b"") + data).split(b"\n")
    if len(left) > _LONGEST:
        whole, left = [*whole, left], b""
    if left:
        rest[stream] = left
    return _added(log, whole, tuple(rest.items()), redact)


def flush(log: StepLog, redact: Callable[[str], str]) -> tuple[StepLog, tuple[str, ...]]:
    """Return the log with its open lines ended, and these lines. For the end of a step."""
    return _added(log, [data for _stream, data in log.open], (), redact)


def clip_note(line: str) -> str:
    """The limit ("2MiB", "200KiB/s") when `line` is BuildKit's note that it dropped output, else ""."""
    match = _CLIPPED.search(line)
    return match[1] if match else ""


def _added(
    log: StepLog, whole: list[bytes], rest: tuple[tuple[int, bytes], ...], redact: Callable[[str], str]
) -> tuple[StepLog, tuple[str, ...]]:
    lines: list[str] = []
    tail: list[str] = []
    for raw in whole:
        text = redact(raw.decode(errors="replace"))
        states = [_CONTROL.sub("", part).rstrip() for part in text.split("\r")]
        shown = [part for part in states if part] or [""]
        lines += shown
        tail.append(shown[-1])
    return StepLog((*log.tail, *tail)[-KEPT_LINES:], rest, log.lines + len(whole)), tuple(lines)
