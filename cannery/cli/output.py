"""Output of commands: without secrets and control characters, wrapped, and with commands in the user's form."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cannery.util.addresses import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import TextIO


# The program of a checkout. Messages in the code use this name.
CHECKOUT = "build.py"
MAKE = "make"
# Patterns are texts here: `re` compiles them on first use, and most runs never need them.
_OF_CHECKOUT = r"(?<![\w./-])(?:(?P<python>python3?) )?build\.py (?P<words>[a-z][a-z-]*|--help)\b"
# A command that also exists in make: alone, or with a profile, a file or kinds, and with options that make has.
_OPTIONS = r"(?P<options>(?: --(?:arch|base|cann|chip|file|os|output|pin|python|registry) [^\s`;,)]+| --force)*)"
_PLAIN = (
    r"(?m)\b(?:python3? )?build\.py (?P<command>[a-z][a-z-]*)"
    r"(?: (?P<word>PROFILE|[a-z0-9][a-z0-9.-]*|(?<=clean )[a-z]+ [a-z]+|(?<=load )[^\s`;,)-][^\s`;,)]*))?"
    rf"{_OPTIONS}(?=$|[`;,)])"
)
_PINS = r"`((?:--pin [^\s`]+ ?)+)`"
_LINT = ("build.py lint-run '", "make lint-run CMD='")
COLORS = {"error": "1;31", "failed": "1;31", "warning": "33", "note": "36", "passed": "32", "ok": "32"}
_SEVERITY = rf"(?m)^({'|'.join(COLORS)})(?=:| \[|  )"
# The continuation of a long line is indented to the last column of a row, or to the text after a mark.
_COLUMN = r" {2,}(?=\S)"
_MARK = r" *(?:(?:[→•✅❌–-]|⚠️) +)?"
# Lines that are not wrapped: log lines and shell commands.
_AS_IT_IS = r"\s*(?:[|$]|sudo|docker|podman) |.*\\$"
# A word with the spaces before it. A quoted command is not wrapped, so that it can be copied.
_PIECES = r" *(?:`[^`\n]*`\S*|\S+)"
# Text is not wrapped for narrower terminals.
_NARROWEST = 40


def as_called(text: str, program: str, commands: Collection[str], of_profile: Collection[str]) -> str:
    """Return a message with its commands in the form of `program`: "build.py", "cannery" or "make".

    `commands` are all commands, `of_profile` those that take a profile. With make, a command with an option that is
    not in `_OPTIONS` gets the form of a checkout, `python3 build.py COMMAND`, which also works.
    """
    if program == MAKE:
        text = re.sub(_PINS, lambda found: f"`{_variables(found[1]).strip()}`", text) if "`--pin" in text else text
        if CHECKOUT not in text:
            return text
        text = re.sub(_PLAIN, lambda found: _make_command(found, of_profile), text.replace(*_LINT))
    if CHECKOUT not in text:
        return text

    def named(found: re.Match[str]) -> str:
        if found["words"] not in {*commands, "--help"}:
            return found[0]
        in_checkout = f"{found['python'] or 'python3'} {CHECKOUT}"
        return f"{in_checkout if program in {CHECKOUT, MAKE} else program} {found['words']}"

    return re.sub(_OF_CHECKOUT, named, text)


def _make_command(found: re.Match[str], of_profile: Collection[str]) -> str:
    command, word, options = found["command"], found["word"], _variables(found["options"])
    if not word:
        return f"make {command}{options}" if command in {*of_profile, "clean", "lint-run"} else found[0]
    if command in {"load", "clean"}:
        return f"make load FILE={word}{options}" if command == "load" else f"make clean KIND='{word}'"
    return f"make {command} PROFILE={word}{options}" if command in of_profile else found[0]


def _variables(options: str) -> str:
    """Return options as make's variables. Each has one value, but PIN is a list."""
    pairs = [option.split() for option in f" {options}".split(" --")[1:]]
    pins = [pair[1] for pair in pairs if pair[0] == "pin"]
    others = [f"{name.upper()}={value[0] if value else 1}" for name, *value in pairs if name != "pin"]
    listed = [f"PIN='{' '.join(pins)}'" if len(pins) > 1 else f"PIN={pins[0]}"] if pins else []
    return "".join(f" {one}" for one in listed + others)


class CleanStream:
    """A text stream that writes `clean(text)`; everything else is passed to the stream.

    Lines are wrapped at `width` (0: not wrapped). With `color`, severities have colours. With `muted`, nothing is
    written.
    """

    def __init__(self, stream: TextIO, clean: Callable[[str], str]) -> None:
        # rich writes control characters directly to the stream in this attribute.
        self.rich_proxied_file = stream
        self.width = 0
        self.color = False
        self.muted = False
        self._clean = clean

    def write(self, text: str) -> int:
        """Write the cleaned text, and return the number of characters of the original."""
        if not self.muted:
            shown = plain(self._clean(text))
            if self.width >= _NARROWEST:
                shown = "\n".join(wrapped(line, self.width) for line in shown.split("\n"))
            self.rich_proxied_file.write(colored(shown) if self.color else shown)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.rich_proxied_file, name)


def wrapped(line: str, width: int) -> str:
    """Wrap a line at `width` characters, between words, and not inside a word or at a hyphen."""
    if len(line) <= width or re.match(_AS_IT_IS, line):
        return line
    columns = [found.end() for found in re.finditer(_COLUMN, line) if found.end() <= width * 0.6]
    mark = re.match(_MARK, line)
    hang = max([*columns, mark.end() if mark else 0])
    lines, last = [], line[:hang]
    for piece in re.findall(_PIECES, line[hang:]):
        if last.strip() and len(last) > hang and len(last) + len(piece) > width:
            lines.append(last)
            last = " " * hang + piece.lstrip()
        else:
            last += piece
    return "\n".join([*lines, last])


def colored(text: str) -> str:
    """Return `text` with colours for severities at the start of lines."""
    return re.sub(_SEVERITY, lambda found: f"\x1b[{COLORS[found[1]]}m{found[1]}\x1b[0m", text)


def wants_color(choice: str, stream: CleanStream, env: Mapping[str, str]) -> bool:
    """Whether a stream gets colours. `choice` is auto (on a terminal without NO_COLOR), always or never."""
    if choice != "auto":
        return choice == "always"
    return bool(stream.isatty()) and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def width_of(stream: CleanStream, env: Mapping[str, str]) -> int:
    """Return the width of a stream's terminal (COLUMNS overrides it); 0 if it is not a terminal."""
    if not stream.isatty():
        return 0
    try:
        return int(env.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


@contextmanager
def clean_streams(clean: Callable[[str], str]) -> Iterator[tuple[CleanStream, CleanStream]]:
    """Replace standard output and standard error by `CleanStream`s while the block runs, and yield these."""
    before = sys.stdout, sys.stderr
    out, err = (CleanStream(stream, clean) for stream in before)
    sys.stdout, sys.stderr = out, err
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before
