"""Reads the commands of a shell text, as far as no shell is needed for it.

It reads continued lines, comments, quotes, `NAME=value`, literal arrays, `{0..7}` and `${NAME:-default}`. What only a
shell knows stays as it is written: `$(…)`, a variable that the text does not set, a guide's `<placeholder>`. Python's
shlex is not used: it loses how a word is written, which a corrected command needs.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The output of a command, in which there may be others; deeper than this is no command line.
_OUTPUT = r"[^()]"
for _ in range(4):
    _OUTPUT = rf"(?:[^()]|\((?:{_OUTPUT})*+\))"
# What only a shell can fill in, or the reader of a guide.
OPEN = rf"\$\({_OUTPUT}*+\)|\$\{{[^{{}}]*\}}|`[^`]*`|<\w(?:[\w .:/-]*\w)?>"
_DOUBLE = rf'"(?:\\.|\$\({_OUTPUT}*+\)|[^"\\])*+"'
_TOKEN = re.compile(
    r"""(?P<cut>\\(?:[ \t]+(?:\#[^\n]*)?|\n[ \t]*\#[^\n]*)(?:\n|\Z))"""
    r"""|(?P<gap>[ \t\r\xa0]+|\\(?:\n|\Z))"""
    r"""|(?P<option_line>(?:\n[ \t\r]*)++(?=--?[a-zA-Z]))"""
    r"""|(?P<comment>\#[^\n]*)"""
    r"""|(?P<redirect>(?!<\w[\w .:/-]*>)\d*(?:>>?|<{1,3})&?[ \t]*[^\s;&|]+)"""
    r"""|(?P<end>&&|\|\||[;&|()]|(?:\n[ \t\r]*)++)"""
    rf"""|(?P<word>(?:'[^']*'|{_DOUBLE}|\\.|{OPEN}|[^\s;&|<>()'"`\\]|(?<=\S)\\\n)+)""",
    re.DOTALL,
)
# What counts as it is in a word; variables are filled in in the rest.
_QUOTED = re.compile(rf"""('[^']*'|{_DOUBLE}|\\.|\$\({_OUTPUT}*+\)|`[^`]*`)""", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^{}]*))?\}|(?P<plain>[A-Za-z_]\w*))")
_ARRAY = re.compile(r'(?P<quote>"?)\$\{(?P<name>\w+)\[[@*]\](?::?-[^{}]*)?\}(?P=quote)')
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
# Braces that a shell fills in; not those in quotes, nor those of a variable.
_BRACES = re.compile(
    rf"""'[^']*'|{_DOUBLE}|\\.|{OPEN}"""
    r"""|\{(?:(?P<first>\d{1,3})\.\.(?P<last>\d{1,3})|(?P<parts>[^{},\s'"]*,[^{}\s'"]*))\}""",
    re.DOTALL,
)
_SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
# Words that begin and end what may never run, or run several times, and words that can come before a command.
_OPENS, _ENDS = frozenset({"for", "while", "until", "if", "case", "select"}), frozenset({"done", "fi", "esac"})
_WITHIN = frozenset({"do", "then", "else", "{", "}", "!", *_ENDS})
# Linux takes 2 MiB of words for a command.
MOST_CHARACTERS = 1 << 21


@dataclass(frozen=True)
class Word:
    """One word: `raw` as it is written, `value` as a shell hands it on."""

    raw: str
    value: str


@dataclass(frozen=True)
class Cut:
    """A line that does not continue where its writer seems to mean it: why, and what to do."""

    what: str
    fix: str


@dataclass(frozen=True)
class ShellCommand:
    """The words of one command, the line that it begins in, and the lines in it that are not continued."""

    words: tuple[Word, ...]
    line: int
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Unread:
    """A part of a text that is not read: its line, and why."""

    line: int
    why: str


@dataclass(frozen=True)
class ShellText:
    """The commands of a text, none of them empty, and what of the text is not read."""

    commands: tuple[ShellCommand, ...]
    unread: tuple[Unread, ...]


def is_open(text: str) -> bool:
    """Whether only a shell, or the reader of a guide, knows a part of `text`."""
    return re.search(rf"\$[\w@*]|{OPEN}", text, re.DOTALL) is not None


def quoted(word: str) -> str:
    """Quote a word for the shell; a word with a variable is written so that the shell still fills it in."""
    return f'"{word}"' if "$" in word and '"' not in word else shlex.quote(word)


def read_shell(text: str) -> ShellText:
    """Return the commands of a shell text.

    Raises `UsageError` where its ranges and variables make more words than a shell takes.
    """
    reader = _Reader()
    reader.read(text.replace("\r\n", "\n"))
    return ShellText(tuple(reader.commands), tuple(reader.unread))


class _Reader:
    """Reads a text from its first line to its last: variables count for the commands after them."""

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.unread: list[Unread] = []
        self._values: dict[str, str] = {}
        self._arrays: dict[str, list[Word]] = {}
        self._words: list[Word] = []
        self._cuts: list[Cut] = []
        self._begin = 1
        self._depth = 0
        self._is_conditional = False
        # The array that is being read, and the words of its command before it.
        self._array = ""
        self._room = MOST_CHARACTERS

    def read(self, text: str) -> None:
        """Read a text."""
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or (match[0] == "(" and text[at - 1 : at] == "$"):
                self._skip(line)
                end = text.find("\n", at)
                at = end if end >= 0 else len(text)
                continue
            self._take(match, line)
            line += match[0].count("\n")
            at = match.end()
        if self._array:
            self.unread.append(Unread(self._begin, f"the array {self._array} is not closed"))
        else:
            self._end("")

    def _skip(self, line: int) -> None:
        """Leave out a command with a quote that is not closed: the words before it are only a part of it."""
        self.unread.append(Unread(line, "a quote or a $( in it is not closed"))
        self._words, self._cuts, self._array = [], [], ""

    def _take(self, match: re.Match[str], line: int) -> None:
        kind, text = match.lastgroup, match[0]
        if kind == "word":
            self._begin = self._begin if self._words or self._array else line
            self._words += self._expanded(text)
        elif kind == "cut":
            self._cuts += [_cut(line, text)] if self._words else []
        elif kind == "option_line" and self._words and not self._array:
            self._cuts.append(Cut(f"line {line} does not end in a backslash, and options follow", "add the backslash"))
        elif kind in {"end", "option_line"}:
            self._operator(text)

    def _operator(self, text: str) -> None:
        if self._array:
            if text == ")":
                self._close()
            return
        last = self._words[-1].raw if self._words else ""
        if text == "(" and (match := _ASSIGNED.fullmatch(last)) and not match[3]:
            self._array = last
            self._words = []
        else:
            self._end(text)

    def _close(self) -> None:
        """Keep the array that ends here. One that may never be set, or several times, is known in part at most."""
        name, adds = self._array.rstrip("+="), self._array.endswith("+=")
        is_sure = not self._depth and not (adds and self._is_conditional)
        rest = [] if is_sure else [Word(f'"${{{name}[@]}}"', f"${{{name}[@]}}")]
        if adds and name in self._arrays:
            self._arrays[name] = [*self._arrays[name], *self._words, *rest]
        elif adds or self._depth:
            self._arrays.pop(name, None)
        else:
            self._arrays[name] = self._words
        self._array, self._words = "", []

    def _end(self, operator: str) -> None:
        if self._words:
            self._assign([word.value for word in self._words])
            self.commands.append(ShellCommand(tuple(self._words), self._begin, tuple(self._cuts)))
        self._words, self._cuts = [], []
        self._is_conditional = operator in {"&&", "||"}

    def _assign(self, words: Sequence[str]) -> None:
        """Keep what a command of assignments alone sets; in a loop or a branch the variable is not known after it."""
        at = 0
        while at < len(words) and words[at] in _WITHIN:
            self._depth -= words[at] in _ENDS and self._depth > 0
            at += 1
        if at < len(words) and words[at] in _OPENS:
            self._depth += 1
            return
        rest = [word for word in words[at:] if word not in _SETTERS and not word.startswith("-")]
        matches = [match for word in rest if (match := _ASSIGNED.fullmatch(word))]
        if len(matches) != len(rest):
            return
        for name, adds, value in (match.groups() for match in matches):
            if self._depth or re.search(r"\$\(|`", value) or (adds and name not in self._values):
                self._values.pop(name, None)
            else:
                self._values[name] = f"{self._values[name]}{value}" if adds else value

    def _expanded(self, raw: str) -> Iterator[Word]:
        """Give the words that one becomes: an array, ranges in braces, an unquoted variable of several words."""
        array, variable = _ARRAY.fullmatch(raw), _VARIABLE.fullmatch(raw)
        if array:
            for word in self._arrays.get(array["name"], [Word(raw, f"${{{array['name']}[@]}}")]):
                self._fits(word.raw)
                yield from [word] if array["quote"] or is_open(word.value) else _parts_of(word)
            return
        if variable:
            name, default = variable["braced"] or variable["plain"], variable["default"]
            if name not in self._values and default is not None and len(default.split()) != 1:
                yield Word(raw, raw)  # options, or none: `${MORE:-}`
                return
            if name in self._values and self._fits(self._values[name]).split() != [self._values[name]]:
                yield from _parts_of(Word(raw, self._values[name]))
                return
        for one in self._ranges(raw):
            yield Word(one, self._value(one))

    def _ranges(self, raw: str) -> Iterator[str]:
        """Give a word once for each value of its ranges in braces, in the order of the shell."""
        raws = [raw]
        while raws:
            one = raws.pop()
            match = next((m for m in _BRACES.finditer(one) if m["first"] or m["parts"]), None) if "{" in one else None
            if match is None:
                yield one
                continue
            parts = match["parts"].split(",") if match["parts"] else _numbers(int(match["first"]), int(match["last"]))
            raws += [self._fits(one[: match.start()] + part + one[match.end() :]) for part in reversed(parts)]

    def _fits(self, text: str) -> str:
        """Return `text`. Raises `UsageError` where there are more characters than a shell takes."""
        self._room -= len(text) + 1
        if self._room < 0:
            hint = "write fewer, or smaller, ranges in braces and variables"
            raise UsageError("it makes too many words for any shell", where="the command", hint=hint)
        return text

    def _value(self, raw: str) -> str:
        """Return what a word means: without quotes, with the variables that are known."""
        if raw.startswith("<"):
            return raw
        if raw == "~" or raw.startswith("~/"):
            raw = f"$HOME{raw[1:]}"
        parts = _QUOTED.split(raw)
        return "".join(self._unquoted(part) if number % 2 else self._filled(part) for number, part in enumerate(parts))

    def _unquoted(self, part: str) -> str:
        if part[0] == "'":
            return part[1:-1]
        if part[0] == '"':
            return self._filled(re.sub(r'\\(["\\$`])', r"\1", part[1:-1].replace("\\\n", "")))
        return part[1:].removeprefix("\n") if part[0] == "\\" else part

    def _filled(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            other = match[0] if match["default"] is None else match["default"]
            return self._fits(self._values.get(match["braced"] or match["plain"], other))

        return _VARIABLE.sub(value, text)


def _parts_of(word: Word) -> list[Word]:
    """Return the words that a shell makes of a value that is not quoted."""
    parts = word.value.split()
    return [word] if parts == [word.value] else [Word(p if is_open(p) else shlex.quote(p), p) for p in parts]


def _cut(line: int, text: str) -> Cut:
    if text.startswith("\\\n"):
        return Cut(f"line {line + 1} is a comment, which ends the command before it", "move the comment up")
    if "#" in text:
        return Cut(f"line {line} has a comment after its backslash, so it does not continue", "move the comment up")
    return Cut(f"line {line} ends in a backslash and a blank, so it does not continue", "remove the blank")


def _numbers(first: int, last: int) -> list[str]:
    step = 1 if first <= last else -1
    return [str(number) for number in range(first, last + step, step)]
