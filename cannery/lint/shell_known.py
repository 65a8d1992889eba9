"""The variables that a shell text sets itself, as far as their values can be told without a shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
# Words of the shell that stand before NAME=value, with options of their own.
_SETTERS = frozenset({"export", "declare", "local", "readonly", "set", "typeset"})
# Words that begin and end what may run never, or several times; and those that stand before a command in it.
_OPENS, _ENDS = frozenset({"for", "while", "until", "if", "case", "select"}), frozenset({"done", "fi", "esac"})
_WITHIN = frozenset({"do", "then", "else", "{", "}", "!", *_ENDS})
# The output of a command.
_OUTPUT = re.compile(r"\$\(|`")


class Known:
    """The variables at one place of a text: `values`, name to value."""

    def __init__(self, given: Iterable[tuple[str, str]]) -> None:
        self.values = dict(given)
        # What `alias NAME='…'` says.
        self.aliases = dict[str, str]()
        self._pairs: tuple[tuple[str, str], ...] | None = None
        # For each block that is open: what is set in it, and counts for nothing that is sure behind it.
        self._open: list[set[str]] = []

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return name and value of each; one tuple for all the commands that read the same."""
        if self._pairs is None:
            self._pairs = tuple(self.values.items())
        return self._pairs

    def take(self, words: Sequence[str]) -> None:
        """Keep what a command of assignments alone sets: `A=1`, `export A=1 B=2`, `A+=2`.

        What a loop or a branch sets is known within it alone: its end may be reached without, or with more of it.
        """
        at = 0
        while at < len(words) and words[at] in _WITHIN:
            if words[at] in _ENDS and self._open:
                self._forget(self._open.pop())
            at += 1
        if at < len(words) and words[at] in _OPENS:
            self._open.append(set())
            return
        if list(words[at : at + 1]) == ["alias"]:
            self.aliases.update((one[1], one[3]) for one in map(_ASSIGNED.fullmatch, words[at + 1 :]) if one)
            return
        rest = [word for word in words[at:] if word not in _SETTERS and not word.startswith("-")]
        matches = [_ASSIGNED.fullmatch(word) for word in rest]
        if all(matches):
            for match in matches:
                if match:
                    self._set(match[1], match[3], adds=bool(match[2]))

    def _set(self, name: str, value: str, *, adds: bool) -> None:
        self._pairs = None
        if self._open:
            self._open[-1].add(name)
        if _OUTPUT.search(value) or (adds and name not in self.values):
            self.values.pop(name, None)
        else:
            self.values[name] = f"{self.values[name]}{value}" if adds else value

    def _forget(self, names: set[str]) -> None:
        self._pairs = None
        for name in names:
            self.values.pop(name, None)
        if self._open:
            self._open[-1] |= names
