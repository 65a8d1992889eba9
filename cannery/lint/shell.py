"""Reads the commands of a shell text, as far as no shell is needed for it.

It reads continued lines, comments, quotes, `NAME=value`, literal arrays, `{0..7}` and `${NAME:-default}`. What only a
shell knows stays as it is written: `$(…)`, a variable that the text does not set, a guide's `<placeholder>`. `shlex`
splits the words once the variables are filled in.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from cannery.errors import UsageError

# The output of a command, in which there may be others; deeper than this is no command line.
_OUTPUT = r"[^()]"
for _ in range(4):
    _OUTPUT = rf"(?:[^()]|\((?:{_OUTPUT})*+\))"
# What only a shell can fill in, or the reader of a guide.
OPEN = rf"\$\({_OUTPUT}*+\)|\$\{{[^{{}}]*\}}|`[^`]*`|<\w(?:[\w .:/-]*\w)?>"
_DOUBLE = rf'"(?:\\.|\$\({_OUTPUT}*+\)|[^"\\])*+"'
_TEXT = rf"""'[^']*'|{_DOUBLE}|\\.|{OPEN}|(?:\$(?![({{])|[^\s;&|<>()'"`\\$])+"""
_PART = re.compile(
    r"""(?P<cut>\\(?:[ \t]+(?:\#[^\n]*)?|\n[ \t]*\#[^\n]*)(?:\n|\Z))"""
    r"""|(?P<joined>\\(?:\n|\Z))"""
    r"""|(?P<option_line>\n\s*+(?=--?[a-zA-Z]))"""
    r"""|(?P<comment>(?<![^\s;&|()])\#[^\n]*)"""
    r"""|(?P<document><<-?[ \t]*['"]?(?P<mark>\w+)['"]?[^\n]*\n(?:[^\n]*\n){0,400}?[ \t]*(?P=mark)(?=\n|\Z))"""
    r"""|(?P<redirect>(?!<\w[\w .:/-]*>)\d*(?:>>?|<{1,3})&?[ \t]*[^\s;&|]+)"""
    rf"""|(?P<array>(?P<name>[A-Za-z_]\w*)(?P<adds>\+?)=\((?P<items>(?:\#[^\n]*|\s|{_TEXT})*+)\))"""
    r"""|(?P<end>&&|\|\||[;&|()]|\n\s*+)"""
    r"""|(?P<unclosed_array>[A-Za-z_]\w*\+?=\(.*)"""
    rf"""|(?P<text>{_TEXT}|[^\S\n]+)"""
    r"""|(?P<unclosed>.[^\n]*)""",
    re.DOTALL,
)
_VARIABLE = r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^{}]*))?\}|(?P<plain>[A-Za-z_]\w*))"
# In order: what counts as it is, an array, text in double quotes, a variable, what stays open, a range or list.
_FILLED_IN = re.compile(
    r"""(?P<literal>'[^']*'|\\.)"""
    r"""|(?P<array>(?P<quote>"?)\$\{(?P<name>\w+)\[[@*]\](?::?-[^{}]*)?\}(?P=quote))"""
    rf"""|(?P<double>{_DOUBLE})|(?P<variable>{_VARIABLE})|(?P<open>{OPEN})"""
    r"""|\{(?P<braces>\d{1,3}\.\.\d{1,3}|[^{},\s'"$]*,[^{}\s'"$]*)\}""",
    re.DOTALL,
)
_IN_DOUBLE = re.compile(rf"\\.|{_VARIABLE}|{OPEN}", re.DOTALL)
# A range or list in braces outside quotes, between marks that no text has.
_BRACES = re.compile("\ue000(?:([0-9]+)[.]{2}([0-9]+)|([^\ue001]*))\ue001")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
# Words that begin and end what may never run, or run several times, and words that can come before a command.
_OPENS, _ENDS = frozenset({"for", "while", "until", "if", "case", "select"}), frozenset({"done", "fi", "esac"})
_WITHIN = frozenset({"do", "then", "else", "{", "}", "!", *_ENDS})
# Linux takes 2 MiB of words for a command.
MOST_CHARACTERS = 1 << 21


@dataclass(frozen=True)
class Cut:
    """A line that does not continue where its writer seems to mean it: why, and what to do."""

    what: str
    fix: str


@dataclass(frozen=True)
class ShellCommand:
    """The words of one command, the line that it begins in, and the lines in it that are not continued."""

    words: tuple[str, ...]
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


def read_shell(text: str) -> ShellText:
    """Return the commands of a shell text.

    Raises `UsageError` where its ranges and variables make more words than a shell takes.
    """
    reader = _Reader()
    line = 1
    for match in _PART.finditer(text.replace("\r\n", "\n")):
        reader.take(match, line)
        line += match[0].count("\n")
    reader.end("")
    return ShellText(tuple(reader.commands), tuple(reader.unread))


class _Reader:
    """Takes the parts of a text in order: variables count for the commands after them."""

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.unread: list[Unread] = []
        self._values: dict[str, str] = {}
        self._arrays: dict[str, tuple[str, ...]] = {}
        self._texts: list[str] = []
        self._cuts: list[Cut] = []
        self._begin = 1
        # How many loops and branches are around, and whether `&&` or `||` is before the command.
        self._depth = 0
        self._is_conditional = False
        self._room = MOST_CHARACTERS

    def take(self, match: re.Match[str], line: int) -> None:
        kind, text = match.lastgroup, match[0]
        if kind == "text" and (self._texts or text.strip()):
            self._begin = self._begin if self._texts else line
            self._texts.append(text)
        elif kind == "array":
            self._set_array(match)
        elif kind in {"unclosed", "unclosed_array"}:
            self.unread.append(Unread(line, "a quote, a bracket or a $( in it is not closed"))
            self._texts, self._cuts = [], []
        elif kind == "end" or (kind == "option_line" and not self._texts):
            self.end(text)
        elif kind in {"cut", "option_line"} and self._texts:
            self._cuts.append(_cut(line, text))
            self._texts.append(" ")

    def end(self, operator: str) -> None:
        """Keep the command that ends here."""
        words = self._words("".join(self._texts))
        if words:
            self._assign(words)
            self.commands.append(ShellCommand(words, self._begin, tuple(self._cuts)))
        self._texts, self._cuts = [], []
        self._is_conditional = operator in {"&&", "||"}

    def _set_array(self, match: re.Match[str]) -> None:
        """Keep an array. One that may never be set, or several times, is known in part at most."""
        name, is_sure = match["name"], not (self._depth or self._is_conditional)
        kept = (part[0] if part.lastgroup == "text" else " " for part in _PART.finditer(match["items"]))
        items = self._words("".join(kept))
        if match["adds"]:
            before = self._arrays.get(name, (f"${{{name}[@]}}",))
            self._arrays[name] = (*before, *items) if is_sure else (*before, *items, f"${{{name}[@]}}")
        elif is_sure:
            self._arrays[name] = items
        else:
            self._arrays.pop(name, None)

    def _assign(self, words: tuple[str, ...]) -> None:
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

    def _words(self, text: str) -> tuple[str, ...]:
        filled = _FILLED_IN.sub(self._filled, text)
        words = tuple(one for word in shlex.split(filled) for one in _ranges(word))
        self._room -= len(filled) + sum(map(len, words))
        if self._room < 0:
            hint = "write fewer, or smaller, ranges in braces and variables"
            raise UsageError("it makes too many words for any shell", where="the command", hint=hint)
        return words

    def _filled(self, match: re.Match[str]) -> str:
        """Return a part of a word with what is known filled in, so that `shlex` reads it as the shell would."""
        kind, text = match.lastgroup, match[0]
        if kind == "array":
            return shlex.join(self._arrays.get(match["name"], (text.strip('"'),)))
        if kind == "double":
            return f'"{_IN_DOUBLE.sub(self._in_double, text[1:-1])}"'
        if kind == "variable":
            value = self._values.get(match["braced"] or match["plain"])
            if value is None and match["default"] is not None and len(match["default"].split()) == 1:
                value = match["default"]
            return shlex.quote(text) if value is None else shlex.join(value.split())
        if kind == "braces":
            return f"\ue000{match['braces']}\ue001"
        return shlex.quote(text) if kind == "open" else text

    def _in_double(self, match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return {"\\\n": "", "\\$": "$", "\\`": "`"}.get(match[0], match[0])
        default = match[0] if match["default"] is None else match["default"]
        return re.sub(r'(["\\])', r"\\\1", self._values.get(match["braced"] or match["plain"] or "", default))


def _ranges(word: str) -> list[str]:
    """Return a word once for each value of the first range or list in braces in it."""
    match = _BRACES.search(word)
    if match is None:
        return [word]
    if match[1] is None:
        parts = match[3].split(",")
    else:
        first, last = int(match[1]), int(match[2])
        parts = [str(number) for number in range(first, last + 1)] or [str(n) for n in range(first, last - 1, -1)]
    rest = word[match.end() :].replace("\ue000", "{").replace("\ue001", "}")
    return [word[: match.start()] + part + rest for part in parts]


def _cut(line: int, text: str) -> Cut:
    if text.startswith("\n"):
        return Cut(f"line {line} does not end in a backslash, and options follow", "add the backslash")
    if text.startswith("\\\n"):
        return Cut(f"line {line + 1} is a comment, which ends the command before it", "move the comment up")
    if "#" in text:
        return Cut(f"line {line} has a comment after its backslash, so it does not continue", "move the comment up")
    return Cut(f"line {line} ends in a backslash and a blank, so it does not continue", "remove the blank")
