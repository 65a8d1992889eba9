"""A shell text as words, as far as a `docker run` line in it can be read without a shell.

Line continuations, comments, quotes, `NAME=value` lines above, `{0..7}`: what the text itself says is put in; a
variable that it does not set, a command's output and a `<placeholder>` of a guide stay as they are written. Python's
shlex loses how a word was written, which a corrected command needs, and takes a `#` within a word for a comment.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.lint.shell_known import Known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# `$(…)`, in which more of them may stand; deeper than this is no command line.
_OUTPUT = r"[^()]"
for _ in range(4):
    _OUTPUT = rf"(?:[^()]|\((?:{_OUTPUT})*+\))"
# What only a shell can fill in, or who follows a guide: the output of a command, `${NAME:-x}`, `<a name>`.
OPEN = rf"\$\({_OUTPUT}*+\)|\$\{{[^{{}}]*\}}|`[^`]*`|<\w(?:[\w .:/-]*\w)?>"
_DOUBLE = rf'"(?:\\.|\$\({_OUTPUT}*+\)|[^"\\])*+"'
_PIECE = rf"""'[^']*'|{_DOUBLE}|\\.|{OPEN}|[^\s;&|<>()'"\\`]"""
# What stands for itself in a word; the rest of it is plain text, in which variables are filled in.
_QUOTED = re.compile(rf"""('[^']*'|{_DOUBLE}|\\.|\$\({_OUTPUT}*+\)|`[^`]*`)""", re.DOTALL)
_WORD = re.compile(rf"(?:{_PIECE}|(?<=\S)\\\n)+", re.DOTALL)
_BETWEEN = re.compile(r"(?:[ \t\r\xa0]|\\\n)+")
_CUT = re.compile(r"\\[ \t]+(?P<comment>#[^\n]*)?(?:\n|$)")
# Why a command ends too early, and what to do.
_BLANK = "ends in a backslash and a blank, which is no continuation"
_BEHIND = "has a comment behind its backslash, which is no continuation then"
_WITHIN = "is a comment, which ends the command that the line before it continues"
_NONE = "does not end in a backslash, and the command goes on in the next"
_EMPTY = "is not continued: a line that is empty, or none of the command, comes next"
_FIXES = {
    _BLANK: "remove the blank behind the backslash",
    _BEHIND: "remove the comment behind the backslash, or write it above the command",
    _WITHIN: "write the comment above the command",
    _NONE: "end the line with a backslash",
    _EMPTY: "take the lines between out, and end the line with a backslash",
}
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"\d*(?:>>?|<<?)&?[ \t]*[^\s;&|]+")
_OPERATOR = re.compile(r"&&|\|\||[;&|()\n]")
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^{}]*))?\}|(?P<plain>[A-Za-z_]\w*))")
# Braces that a shell fills in; not those in quotes, nor those of a variable or a command of its own.
_RANGE = re.compile(
    rf"""'[^']*'|{_DOUBLE}|\\.|{OPEN}|(?P<braces>\{{(?:(\d{{1,3}})\.\.(\d{{1,3}})(?:\.\.(\d{{1,3}}))?|([^{{}},\s'"]*,[^{{}}\s'"]*))\}})""",
    re.DOTALL,
)
# Linux takes 2 MiB of words for a command, unless its stack is made larger.
MOST_CHARACTERS = 1 << 21


class _Room:
    """What may still come of ranges and variables: a few letters of a text can stand for more than a machine holds."""

    def __init__(self) -> None:
        self._left = MOST_CHARACTERS

    def take(self, text: str) -> str:
        """Return `text`. Raises `UsageError` where there is no room left for it."""
        self._left -= len(text) + 1
        if self._left < 0:
            hint = "write fewer, or smaller, ranges in braces and variables"
            raise UsageError("it makes too many words for any shell", where="the command", hint=hint)
        return text


@dataclass(frozen=True)
class Word:
    """One word: `raw` as it is written, `value` as a shell would hand it on, and the line it stands in, from 1."""

    raw: str
    value: str
    line: int


@dataclass(frozen=True)
class ShellCommand:
    """The words of one command. `cut` says why it ends where its writer may not have meant it to, or "" .

    `known` are the variables that the text sets before it, name and value.
    """

    words: tuple[Word, ...]
    cut: str = ""
    known: tuple[tuple[str, str], ...] = ()


def is_open(text: str) -> bool:
    """Whether a part of `text` is known to a shell alone, or to who follows the guide that it is from."""
    return re.search(rf"\$[\w@*]|{OPEN}", text, re.DOTALL) is not None


def not_continued(before: ShellCommand, after: ShellCommand) -> str:
    """Return the cut between two commands of which the second begins in a line of its own, "" for one line."""
    last, first = before.words[-1].line, after.words[0].line
    if last == first:
        return ""
    return f"line {last} {_NONE if first == last + 1 else _EMPTY}"


def cut_fix(cut: str) -> str:
    """Return what to do about a cut."""
    return next(fix for why, fix in _FIXES.items() if cut.endswith(why))


def quoted(word: str) -> str:
    """Quote a word for the shell; one with a variable is written so that the shell still fills it in."""
    return f'"{word}"' if "$" in word and '"' not in word else shlex.quote(word)


def shell_commands(text: str, given: Iterable[tuple[str, str]] = ()) -> tuple[ShellCommand, ...]:
    """Split `text` into commands, none of them empty; `given` are variables that are set before it.

    Raises `UsageError` for a quote that is not closed, and for what becomes more words than a shell takes.
    """
    found: list[ShellCommand] = []
    known = Known(given)
    words: list[Word] = []
    room = _Room()
    for token in _tokens(text.replace("\r\n", "\n")):
        if isinstance(token, Word):
            words += _expanded(token, known.values, room)
            continue
        if words:
            if words[0].raw in known.aliases:
                words[:1] = _written_out(known.aliases[words[0].raw], known, room)
            known.take([word.value for word in words])
            found.append(ShellCommand(tuple(words), token, known.pairs()))
        words = []
    return tuple(found)


def _written_out(alias: str, known: Known, room: _Room) -> list[Word]:
    """Return the words that an alias stands for."""
    tokens = _tokens(room.take(alias))
    return [one for token in tokens if isinstance(token, Word) for one in _expanded(token, known.values, room)]


def _tokens(text: str) -> Iterator[Word | str]:
    """Give words (whose value is not worked out yet), and for each end of a command why it ends: "" for a plain end."""
    at, line, continued = 0, 1, False
    while at < len(text):
        if match := _BETWEEN.match(text, at):
            continued = "\n" in match[0]
        elif match := _CUT.match(text, at):
            yield f"line {line} {_BEHIND if match['comment'] else _BLANK}"
        elif match := _COMMENT.match(text, at):
            if continued:
                yield f"line {line} {_WITHIN}"
        elif match := _REDIRECT.match(text, at) if not _WORD.match(text, at) or text[at].isdigit() else None:
            pass
        elif match := _OPERATOR.match(text, at):
            continued = False
            yield ""
        elif match := _WORD.match(text, at):
            continued = False
            yield Word(match[0], "", line)
        if match is None:
            hint = "close it; an apostrophe in prose between the commands counts as one too"
            raise UsageError(f"a quote that begins in line {line} is not closed", where="the command", hint=hint)
        line += match[0].count("\n")
        at = match.end()
    yield ""


def _expanded(word: Word, known: Mapping[str, str], room: _Room) -> Iterator[Word]:
    """Give the words that one becomes: ranges in braces and a known variable of several words make several."""
    raws = [word.raw]
    while raws:
        raw = raws.pop()
        whole = _VARIABLE.fullmatch(raw)
        name = whole and (whole["braced"] or whole["plain"])
        if whole and name not in known and (default := whole["default"]) is not None and len(default.split()) != 1:
            yield Word(raw, raw, word.line)  # options, or none: `${MORE:-}`
            continue
        if name and name in known and (parts := room.take(known[name]).split()) != [known[name]]:
            # Not quoted where the shell has something to fill in, which may be several words.
            yield from (Word(part if is_open(part) else shlex.quote(part), part, word.line) for part in parts)
            continue
        ranged = next((match for match in _RANGE.finditer(raw) if match["braces"]), None) if "{" in raw else None
        if ranged is None:
            yield Word(raw, _value(raw, known, room), word.line)
            continue
        head, tail = raw[: ranged.start()], raw[ranged.end() :]
        raws += [room.take(f"{head}{part}{tail}") for part in reversed(_parts(ranged))]


def _parts(ranged: re.Match[str]) -> list[str]:
    if ranged[5] is not None:
        return ranged[5].split(",")
    first, last = int(ranged[2]), int(ranged[3])
    sign = 1 if first <= last else -1
    return [str(number) for number in range(first, last + sign, sign * (int(ranged[4] or 1) or 1))]


def _value(raw: str, known: Mapping[str, str], room: _Room) -> str:
    """Return what a word means: unquoted, with the variables that are known; all else of the shell's stays text."""
    if raw.startswith("<"):
        return raw
    if raw == "~" or raw.startswith("~/"):
        raw = f"$HOME{raw[1:]}"  # filled in there alone, not within a word
    parts = _QUOTED.split(raw)
    return "".join((_filled, _unquoted)[number % 2](part, known, room) for number, part in enumerate(parts))


def _unquoted(part: str, known: Mapping[str, str], room: _Room) -> str:
    if part[0] == "'":
        return part[1:-1]
    if part[0] == '"':
        return _filled(re.sub(r'\\(["\\$`])', r"\1", part[1:-1].replace("\\\n", "")), known, room)
    if part[0] == "\\":
        return part[1:].removeprefix("\n")
    return part


def _filled(text: str, known: Mapping[str, str], room: _Room) -> str:
    def value(match: re.Match[str]) -> str:
        default = match["default"]
        return room.take(known.get(match["braced"] or match["plain"], match[0] if default is None else default))

    return _VARIABLE.sub(value, text)
