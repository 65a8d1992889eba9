"""A `docker run` line, read as docker reads it, and written again with changes."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.lint.container import Container
from cannery.lint.run_options import CLIENT_VALUES
from cannery.lint.run_words import Misread, Reader
from cannery.lint.shell_inner import inner_texts, of_page, without_documents
from cannery.lint.shell_words import cut_fix, not_continued, shell_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.lint.shell_words import ShellCommand, Word

PROGRAMS = frozenset({"docker", "podman", "nerdctl"})
# What may stand before the program and belongs to the command; a prompt does not.
BEFORE = frozenset({"sudo", "env", "exec", "nohup", "time"})
NO_IMAGE = "no image is named"
# Texts in texts: `ssh HOST "sudo sh -c 'docker run …'"`.
MOST_INNER = 3
# Lines that a command is joined of while its image is looked for: each time all its words are read again.
MOST_JOINED = 100
# How a line begins that a command without an image goes on with: an option, or the name of an image.
GOES_ON = re.compile(r"--?[a-zA-Z]|(?![./~])[^=]*[\w}>][/:]\w|[$<][\w{(]")
# Commands that people give instead, and what to give.
OTHERS = {
    "exec": "`exec` adds nothing to a container: give the `docker run` that starts it",
    "start": "`start` adds nothing to a container: give the `docker run` that made it",
    "compose": "give its file: build.py lint-run --file compose.yaml",
    "service": "swarm maps no devices: give a `docker run` line or a compose file",
}


@dataclass(frozen=True)
class RunLine:
    """A `docker run` line: the words before its options, its options as they are written, and what they ask for.

    `known` are the variables, name and value, that it was read with.
    """

    head: tuple[str, ...]
    written: tuple[tuple[str, ...], ...]
    image: str
    command: tuple[str, ...]
    container: Container
    misread: tuple[Misread, ...] = ()
    known: tuple[tuple[str, str], ...] = ()

    def text(
        self,
        changes: Mapping[int, tuple[str, ...]],
        added: Sequence[tuple[str, ...]],
        taken: frozenset[int] = frozenset(),
    ) -> str:
        """Return the line, an option a line: those at `changes` written otherwise, `added` behind all of them.

        `taken` are places among the words behind the image, of words that go.
        """
        options = [changes.get(number, words) for number, words in enumerate(self.written)]
        lines = [" ".join(words) for words in (self.head, *options, *added, (self.image,)) if words]
        command = [word for number, word in enumerate(self.command) if number not in taken]
        return " \\\n    ".join(lines) + "".join(f" {word}" for word in command)

    @property
    def doubles(self) -> tuple[int, ...]:
        """The places of options that come again with the same value, but for the last of each, which counts.

        A value with the output of a command is none: it may be another one each time.
        """
        last: dict[tuple[str, str], int] = {}
        found = []
        for setting in self.container.settings:
            if setting.value is None or "$(" in setting.value or "`" in setting.value:
                continue
            before = last.get((setting.key, setting.value))
            found += [] if before is None else [before]
            last[setting.key, setting.value] = setting.at
        return tuple(found)


@dataclass(frozen=True)
class NoImage:
    """A `docker run` line that names no image: its words before the options, and what may have become of the image."""

    words: str
    hint: str


def run_lines(text: str, known: Iterable[tuple[str, str]] = ()) -> tuple[RunLine | NoImage, ...]:
    """Return the `docker run` and `docker create` lines of a shell text, in order; `known` variables are set before it.

    Raises `UsageError` where there is none, or none that names an image.
    """
    commands = shell_commands(without_documents(of_page(text)), known)
    found = _found(commands, MOST_INNER)
    lost = [line for line in found if isinstance(line, NoImage)]
    if lost and len(lost) == len(found):
        raise UsageError(NO_IMAGE, where="the command", hint=lost[0].hint)
    if not found:
        values = [word.value for command in commands for word in command.words]
        other = next((value for name, value in pairwise(values) if name in PROGRAMS and value in OTHERS), "")
        usual = "for example: build.py lint-run 'docker run --rm IMAGE'; a compose file: --file compose.yaml"
        raise UsageError("there is no `docker run` in it", where="the command", hint=OTHERS.get(other, usual))
    return tuple(found)


def _found(commands: Sequence[ShellCommand], depth: int) -> list[RunLine | NoImage]:
    """Return the lines among `commands`; where there are none, those in texts that their words are."""
    found: list[RunLine | NoImage] = []
    for number, command in enumerate(commands):
        start = _options_at(command.words)
        if start:
            words, cuts = _joined(commands, number, start)
            found.append(_run_line(words, start, cuts, command.known))
    if not found and depth:
        for text, known in inner_texts(commands):
            with suppress(UsageError):  # of words that only look like it
                inner = _found(shell_commands(text, known), depth - 1)
                found += [line for line in inner if isinstance(line, RunLine)]
    return found


def _options_at(words: Sequence[Word]) -> int:
    """Return where the options of `docker [container] run|create` begin, 0 for another command."""
    values = [word.value for word in words]
    number = next((n + 1 for n, value in enumerate(values) if PurePosixPath(value).name in PROGRAMS), len(values))
    while number < len(values) and values[number].startswith("-"):
        number += 2 if values[number] in CLIENT_VALUES else 1
    number += values[number : number + 1] == ["container"]
    return number + 1 if values[number : number + 1] in (["run"], ["create"]) else 0


def _first(words: Sequence[Word]) -> int:
    """Return where the command begins, behind a prompt."""
    names = [PurePosixPath(word.value).name for word in words]
    return next(n for n, name in enumerate(names) if name in BEFORE | PROGRAMS)


def _joined(commands: Sequence[ShellCommand], number: int, start: int) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """Return command `number` with what its writer meant to be a part of it, and why it is none."""
    words = list(commands[number].words)
    cuts: list[str] = []
    for at in range(number, len(commands) - 1):
        before, after = commands[at], commands[at + 1]
        likely = before.cut and (after.words[0].value.startswith("-") or len(after.words) == 1)
        cut = before.cut if likely else _lost_image(words[start:], before, after, len(cuts))
        if not cut:
            break
        cuts.append(cut)
        words += after.words
    return tuple(words), tuple(cuts)


def _lost_image(words: list[Word], before: ShellCommand, after: ShellCommand, joined: int) -> str:
    """Return why `after`, where the image of `words` may stand, is cut off; "" where they have one, or it may not."""
    goes_on = before.cut or GOES_ON.match(after.words[0].value)
    if joined > MOST_JOINED or not goes_on or _options_at(after.words):
        return ""
    reader = Reader(list(words))
    reader.read()
    return "" if reader.left else before.cut or not_continued(before, after)


def _run_line(
    words: Sequence[Word], start: int, cuts: Sequence[str], known: tuple[tuple[str, str], ...]
) -> RunLine | NoImage:
    reader = Reader(list(words[start:]))
    reader.read()
    if not reader.left and reader.opaque:  # `$X --model x`: the last of them is the image, not options
        reader = Reader(list(words[start:]), reader.opaque[-1])
        reader.read()
    left = list(reader.left)
    why = "docker never sees the words behind it"
    misread = [Misread("run.cut", cut, f"{cut}: {why}", fix=cut_fix(cut)) for cut in cuts]
    if not left:
        hint = "the image stands behind the options; was it taken for the value of the last one?"
        if cuts:
            hint = f"{cuts[-1]}: {cut_fix(cuts[-1])}"
        return NoImage(" ".join(word.value for word in words[_first(words) : start]), hint)
    container = Container(
        image=left[0].value,
        settings=tuple(reader.settings),
        command=tuple(word.value for word in left[1:]),
        opaque=tuple(reader.opaque),
    )
    return RunLine(
        head=tuple(word.raw for word in words[_first(words) : start]),
        written=tuple(reader.written),
        image=left[0].raw,
        command=tuple(word.raw for word in left[1:]),
        container=container,
        misread=(*misread, *reader.misread),
        known=known,
    )
