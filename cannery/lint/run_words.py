"""The words of a `docker run` line up to its image, read as docker reads them."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.lint.container import Setting
from cannery.lint.run_options import ALIASES, OUR_SWITCHES, OURS, SHORT_SWITCHES, SHORT_VALUES, SWITCHES, VALUES
from cannery.lint.shell_words import quoted
from cannery.vocab import nearest

if TYPE_CHECKING:
    from cannery.lint.shell_words import Word

# How like docker's own an option is that is taken for a slip of it, and written so: less of it is another word.
SLIP = 0.75
_IMAGE_NAME = re.compile(r"ima?ge?|tag", re.IGNORECASE)
# An image that cannot be another thing; what holds options: a command's output, `${MORE:-}`, `${MORE:---rm}`.
_IMAGE = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)*:[\w.-]+(?:@.*)?")
_HOLDS_OPTIONS = re.compile(r"(?:\$\(|`).*[\s\"'](?:--\w|-v\b)|\$\{\w+:?-(?:-.*)?\}$", re.DOTALL)
# What a word processor makes of two hyphens.
_DASHES = re.compile(r"^(?:[\u2010-\u2015\u2212]{1,2}-?|-[\u2010-\u2015\u2212])(?=[A-Za-z])")


@dataclass(frozen=True)
class Misread:
    """A word that docker does not take as it was meant: `code`, the word, what is wrong, and the word that is meant.

    `fix` says what to do where no word can take its place.
    """

    code: str
    word: str
    what: str
    meant: str = ""
    fix: str = ""


class Reader:
    """Reads options up to the image.

    Afterwards `left` is what stands from the image on, `settings` what the options ask for, `written` how each is
    written (a setting's `at` counts in it), `opaque` variables that may hold options, `misread` what docker reads
    otherwise than meant.
    """

    def __init__(self, words: list[Word], image: str = "") -> None:
        """Take the words behind `run`; `image` is one that only a shell knows, and that is none of options."""
        self.left = deque(words)
        self._image = image
        self.settings: list[Setting] = []
        self.written: list[tuple[str, ...]] = []
        self.opaque: list[str] = []
        self.misread: list[Misread] = []

    def read(self) -> None:
        """Read."""
        while self.left:
            value = self._plain_dash(self.left[0])
            if value == "--":
                self.left.popleft()
                return
            if value.startswith("--"):
                self._long(self.left.popleft(), value)
            elif value.startswith("-") and value != "-":
                self._short(self.left.popleft(), value)
            elif self._is_of_options(value):
                self.opaque.append(value)
                self._keep(self.left.popleft().raw)
            else:
                return

    def _is_of_options(self, value: str) -> bool:
        """Whether what only a shell knows holds options, not the image: an option, a variable or an image follows."""
        if not value.startswith(("$", "`")) or len(self.left) == 1 or value == self._image:
            return False
        after = self.left[1].value
        holds = after.startswith(("-", "$", "`", "<")) or _DASHES.match(after) or _IMAGE.fullmatch(after)
        return _HOLDS_OPTIONS.match(value) is not None or bool(holds and not _IMAGE_NAME.search(value))

    def _plain_dash(self, word: Word) -> str:
        match = _DASHES.match(word.value)
        if match is None:
            return word.value
        meant = "--" + word.value[match.end() :]
        what = f"{word.value} begins with a dash that is no hyphen, so docker takes it for the image"
        self.misread.append(Misread("run.dash", word.value, what, meant))
        return meant

    def _long(self, word: Word, value: str) -> None:
        name, equals, given = value[2:].partition("=")
        key = self._known(ALIASES.get(name, name), word)
        raw = (
            word.raw
            if key == ALIASES.get(name, name) and word.value == value
            else f"--{key}{equals}{quoted(given) if given else given}"
        )
        if equals or key in SWITCHES | OUR_SWITCHES:
            self._keep(raw)
            self._add(key, given if equals else None, raw)
        else:
            self._with_next(key, raw, value.partition("=")[0] if raw == word.raw else raw)

    def _known(self, name: str, word: Word) -> str:
        """Return the option that is meant: the nearest one where docker has none of that name."""
        if name in SWITCHES | VALUES:
            return name
        if name in OURS:
            what = f"docker run has no option --{name}: it is one of `build.py run`"
            self.misread.append(Misread("run.option", f"--{name}", what, fix=OURS[name]))
            return name
        near = nearest(name, sorted(SWITCHES | VALUES), count=1, likeness=SLIP)
        what = f"docker run has no option --{name}"
        self.misread.append(Misread("run.option", word.value, what, f"--{near[0]}" if near else ""))
        return near[0] if near else name

    def _with_next(self, key: str, raw: str, shown: str) -> None:
        """Add an option whose value is the next word; one that is not known has none where an option follows."""
        follows = self.left and (key in VALUES or not self.left[0].value.startswith("-"))
        if not follows:
            self._keep(raw)
            self._add(key, None, shown)
            return
        after = self.left.popleft()
        self._keep(raw, after.raw)
        self._add(key, after.value, f"{shown} {after.value}")

    def _short(self, word: Word, value: str) -> None:
        """Read a bundle: switches, and perhaps an option whose value is the rest of the word, or the next word."""
        switches = ""
        for number, letter in enumerate(value[1:], start=1):
            if letter in SHORT_SWITCHES:
                switches += letter
                continue
            self._switches(switches, word.raw if number == 1 else "")
            if letter not in SHORT_VALUES:
                what = f"docker run has no option -{letter}"
                self.misread.append(Misread("run.option", word.value, what))
                self._keep(word.raw)
                return
            rest = value[number + 1 :].removeprefix("=")
            key = SHORT_VALUES[letter]
            if rest:
                self._keep(word.raw if number == 1 else f"-{letter}{quoted(rest)}")
                self._add(key, rest, f"-{letter} {rest}")
            else:
                self._with_next(key, f"-{letter}", f"-{letter}")
            return
        self._switches(switches, word.raw)

    def _switches(self, letters: str, raw: str) -> None:
        for number, letter in enumerate(letters):
            self._keep(*([raw or f"-{letters}"] if number == 0 else []))
            self._add(SHORT_SWITCHES[letter], None, f"-{letter}")

    def _keep(self, *raws: str) -> None:
        self.written.append(raws)

    def _add(self, key: str, value: str | None, word: str) -> None:
        self.settings.append(Setting(key, value, word, len(self.written) - 1))
