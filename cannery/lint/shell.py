"""Reads the commands of a shell text, as far as no shell is needed for it.

It reads continued lines, comments, quotes, and the variables and literal arrays that the text sets once. What only a
shell knows stays as it is written: `$(…)`, any other variable, a guide's `<placeholder>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cannery.errors import UsageError

_OUTPUT = r"\$\((?:[^()]|\([^()]*\))*+\)"
# What only a shell can fill in, or the reader of a guide.
OPEN = rf"{_OUTPUT}|\$\{{[^{{}}]*\}}|`[^`]*`|<\w(?:[\w .:/-]*\w)?>"
_SINGLE, _DOUBLE = r"'[^']*'", rf'"(?:\\.|{_OUTPUT}|[^"\\])*+"'
_PART = re.compile(
    r"(?P<cut>\\(?:[ \t]+(?:\#[^\n]*)?|\n[ \t]*\#[^\n]*)(?:\n|\Z))"
    r"|(?P<joined>\\(?:\n|\Z))"
    r"|(?P<option_line>\n\s*+(?=--?[a-zA-Z]))"
    r"|(?P<blank>[^\S\n]+|(?<![^\s;&|()])\#[^\n]*)"
    r"|(?P<document><<-?[ \t]*['\"]?(?P<mark>\w+)['\"]?[^\n]*\n(?:[^\n]*\n){0,400}?[ \t]*(?P=mark)(?=\n|\Z))"
    r"|(?P<redirect>(?!<\w[\w .:/-]*>)\d*(?:>>?|<{1,3})&?[ \t]*[^\s;&|]+)"
    rf"|(?P<array>(?P<name>[A-Za-z_]\w*)(?P<adds>\+?)=\((?P<items>(?:{_SINGLE}|{_DOUBLE}|{OPEN}|\#[^\n]*|[^()'\"`])*+)\))"
    r"|(?P<end>&&|\|\||[;&|()]|\n\s*+)"
    rf"|(?P<single>{_SINGLE})|(?P<all>\"?\$\{{(?P<of>\w+)\[[@*]\]\}}\"?)|(?P<double>{_DOUBLE})|(?P<escaped>\\.)"
    r"|(?P<unclosed_array>[A-Za-z_]\w*\+?=\(.*)"
    r"|(?P<variable>\$(?:\{(?P<braced>\w+)\}|(?P<bare>[A-Za-z_]\w*)))"
    rf"|(?P<open>{OPEN})|(?P<braces>\{{[^{{}}\s'\"$]*(?:,|\.\.)[^{{}}\s'\"$]*\}})"
    r"|(?P<plain>[^\s;&|<>()'\"`\\${]+|[{<>]|\$(?![({]))"
    r"|(?P<unclosed>.[^\n]*)",
    re.DOTALL,
)
_IN_DOUBLE = re.compile(rf"\\(?P<escaped>.)|\$(?:\{{(?P<braced>\w+)\}}|(?P<bare>[A-Za-z_]\w*))|{OPEN}", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
# Words that may come before an assignment.
_BEFORE = frozenset({"export", "declare", "local", "readonly", "typeset", "do", "then", "else", "{", "}"})
# Linux takes 2 MiB of words for a command.
MOST_CHARACTERS = 1 << 21


@dataclass(frozen=True)
class ShellCommand:
    """The words of one command, the line that it begins in, and the lines in it that their writer did not continue."""

    words: tuple[str, ...]
    line: int
    cuts: tuple[int, ...] = ()


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


def read_shell(text: str) -> ShellText:
    """Return the commands of a shell text. Raises `UsageError` where its variables make too many words of it."""
    reader = _Reader({})
    line = 1
    for match in _PART.finditer(text.replace("\r\n", "\n")):
        reader.take(match, line)
        line += match[0].count("\n")
    reader.end()
    return ShellText(tuple(reader.commands), tuple(reader.unread))


class _Reader:
    """Takes the parts of a text in order. `known` has what is set: a variable's value, an array's; None where twice."""

    def __init__(self, known: dict[str, tuple[str, ...] | None]) -> None:
        self.commands: list[ShellCommand] = []
        self.unread: list[Unread] = []
        self.words: list[str] = []
        self._known = known
        self._goes_on = False  # whether the next part belongs to the last word
        self._cuts: list[int] = []
        self._begin = 1
        self._room = MOST_CHARACTERS

    def take(self, match: re.Match[str], line: int) -> None:
        kind, text = match.lastgroup, match[0]
        if kind in {"blank", "cut", "option_line", "end", "array"}:
            self._goes_on = False
        if kind == "end" or (kind == "option_line" and not self.words):
            self.end()
        elif kind in {"cut", "option_line"} and self.words:
            self._cuts.append(line + text.startswith("\\\n"))
        elif kind == "array":
            items = _Reader(self._known)
            for part in _PART.finditer(match["items"].replace("\n", " \\\n")):
                items.take(part, line)
            self._set(match["name"], None if match["adds"] else tuple(items.words))
        elif kind in {"unclosed", "unclosed_array"}:
            self.unread.append(Unread(line, "a quote, a bracket or a $( in it is not closed"))
            self.words, self._cuts, self._goes_on = [], [], False
        elif kind not in {"blank", "cut", "joined", "document", "redirect"}:
            self._take_text(match, line)

    def _take_text(self, match: re.Match[str], line: int) -> None:
        kind, text = match.lastgroup, match[0]
        self._begin = self._begin if self.words else line
        if kind == "all":
            items = self._known.get(match["of"])
            self._add(*((text.strip('"'),) if items is None else items))
        elif kind == "variable":
            value = self._value(match, text)
            # Outside quotes, a shell makes several words of a value with blanks, and none of an empty one.
            self._add(*(value.split() if value != text else (text,)))
        elif kind == "double":
            self._add(_IN_DOUBLE.sub(self._in_double, text[1:-1]))
        else:
            if kind == "braces":
                self.unread.append(Unread(line, f"{text} is several words to a shell: write them out"))
            self._add(text[1:-1] if kind == "single" else text[1:] if kind == "escaped" else text)

    def _add(self, *texts: str) -> None:
        """Add text to the last word, or words after it."""
        self._room -= sum(map(len, texts))
        if self._room < 0:
            raise UsageError(
                "it makes too many words for any shell", where="the command", hint="give the command alone"
            )
        if self._goes_on and texts:
            self.words[-1] += texts[0]
            texts = texts[1:]
        self.words += texts
        self._goes_on = self._goes_on or bool(texts)

    def _value(self, match: re.Match[str], text: str) -> str:
        value = self._known.get(match["braced"] or match["bare"] or "")
        return text if value is None else " ".join(value)

    def _in_double(self, match: re.Match[str]) -> str:
        escaped = match["escaped"]
        if escaped is None:
            return self._value(match, match[0])
        return "" if escaped == "\n" else escaped if escaped in '$`"\\' else match[0]

    def _set(self, name: str, value: tuple[str, ...] | None) -> None:
        """Keep what a name is set to; what it holds is not known where it is set again."""
        self._known[name] = None if name in self._known else value

    def end(self) -> None:
        """Keep the command that ends here, and what it sets where it has assignments alone."""
        if self.words:
            self.commands.append(ShellCommand(tuple(self.words), self._begin, tuple(self._cuts)))
            rest = [word for word in self.words if word not in _BEFORE and not word.startswith("-")]
            matches = [match for word in rest if (match := _ASSIGNED.fullmatch(word))]
            for match in matches if len(matches) == len(rest) else ():
                # A text is added to, or is the output of a command.
                is_unsure = match[2] or re.search(r"\$\(|`", match[3])
                self._set(match[1], None if is_unsure else (match[3],))
        self.words, self._cuts, self._goes_on = [], [], False
