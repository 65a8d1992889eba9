"""The `docker run` lines of a shell text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.lint.container import Container
from cannery.lint.options import Misread, read_options
from cannery.lint.shell import Unread, read_shell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.lint.options import Options
    from cannery.lint.shell import ShellCommand, Word

PROGRAMS = frozenset({"docker", "podman", "nerdctl"})
# What may come before the program and belongs to the command; a prompt does not.
BEFORE = frozenset({"sudo", "env", "exec", "nohup", "time"})
# Options of the client itself, before `run`, that take a value in the next word.
CLIENT_VALUES = frozenset(
    {"-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--root", "-n", "--namespace"}
)
NO_IMAGE = "no image is named"
_RUNS = re.compile(r"\b(?:docker|podman|nerdctl)\b.*?\b(?:run|create)\b", re.DOTALL)
# What is copied along with a command: a shell's prompt for a continued line, the fences around a page's block.
_COPIED = re.compile(r"(?<=\\\n)>[ \t]+|^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_HINT = "for example: build.py lint-run 'docker run --rm IMAGE'; a compose file: --file compose.yaml"


@dataclass(frozen=True)
class RunLine:
    """A `docker run` line: the words before its options, what they ask for, and the words from the image on."""

    head: tuple[str, ...]
    container: Container
    tail: tuple[str, ...]
    misread: tuple[Misread, ...] = ()


@dataclass(frozen=True)
class NoImage:
    """A `docker run` line that names no image: its first words, and what may have become of the image."""

    words: str
    hint: str


@dataclass(frozen=True)
class RunText:
    """The lines of a text, in order, and what of it is not read."""

    lines: tuple[RunLine | NoImage, ...]
    unread: tuple[Unread, ...]


def run_lines(text: str) -> RunText:
    """Return the `docker run` and `docker create` lines of a shell text.

    Raises `UsageError` where there is none that names an image.
    """
    shell = read_shell(_COPIED.sub("", text))
    found: list[RunLine | NoImage] = []
    unread = list(shell.unread)
    for command in shell.commands:
        start = _options_at(command.words)
        if start:
            found.append(_run_line(command, start))
        elif any(_RUNS.search(word.value) for word in command.words):
            unread.append(Unread(command.line, "a docker run inside quotes or $(…) is not read: give it by itself"))
    lost = [line for line in found if isinstance(line, NoImage)]
    if lost and len(lost) == len(found):
        raise UsageError(NO_IMAGE, where="the command", hint=lost[0].hint)
    if not found and unread:
        raise UsageError(
            unread[0].why, where=f"the command:{unread[0].line}", hint="write it as a plain docker run line"
        )
    if not found:
        values = [word.value for command in shell.commands for word in command.words]
        is_exec = any(name in PROGRAMS and value in {"exec", "start"} for name, value in pairwise(values))
        hint = "give the `docker run` that makes the container" if is_exec else _HINT
        raise UsageError("there is no `docker run` in it", where="the command", hint=hint)
    return RunText(tuple(found), tuple(sorted(unread, key=lambda one: one.line)))


def _options_at(words: Sequence[Word]) -> int:
    """Return where the options of `docker [container] run|create` begin, 0 for another command."""
    values = [word.value for word in words]
    number = next((n + 1 for n, value in enumerate(values) if PurePosixPath(value).name in PROGRAMS), len(values))
    while number < len(values) and values[number].startswith("-"):
        number += 2 if values[number] in CLIENT_VALUES else 1
    number += values[number : number + 1] == ["container"]
    return number + 1 if values[number : number + 1] in (["run"], ["create"]) else 0


def _run_line(command: ShellCommand, start: int) -> RunLine | NoImage:
    names = [PurePosixPath(word.value).name for word in command.words]
    first = next(n for n, name in enumerate(names) if name in BEFORE | PROGRAMS)  # behind a prompt
    head = tuple(word.raw for word in command.words[first:start])
    options = read_options(command.words[start:])
    cuts = [
        Misread("cut", one.what, f"{one.what}: docker never sees the words after it", one.fix) for one in command.cuts
    ]
    rest, pasted = _without_pasted(options)
    if not rest:
        hint = (
            "the image comes after the options; was it taken for the value of the last one, or is a line not continued?"
        )
        return NoImage(" ".join(head), f"{cuts[-1].word}: {cuts[-1].fix}" if cuts else hint)
    container = Container(rest[0].value, options.settings, tuple(word.value for word in rest[1:]), line=command.line)
    return RunLine(head, container, tuple(word.raw for word in rest), (*cuts, *pasted, *options.misread))


def _without_pasted(options: Options) -> tuple[Sequence[Word], list[Misread]]:
    """Return the words from the image on, without a `docker pull` that was pasted before the image.

    An image called docker is right where the container gets the engine's socket.
    """
    rest = options.rest
    values = [word.value for word in rest[:3]]
    has_socket = any("docker.sock" in (setting.value or "") for setting in options.settings)
    if len(values) < 3 or values[0] not in PROGRAMS or values[1] not in {"pull", "run"} or has_socket:
        return rest, []
    word = " ".join(values[:2])
    what = f"{word} is where the image goes: docker takes {values[0]} for the image"
    return rest[2:], [Misread("image.pasted", word, what, f"leave {word} out: {values[2]} is the image")]
