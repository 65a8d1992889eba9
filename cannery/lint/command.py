"""The `docker run` lines of a shell text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.lint.container import Container, Remark
from cannery.lint.options import misread, read_options
from cannery.lint.shell import Unread, read_shell
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.lint.options import Options
    from cannery.lint.shell import ShellCommand

PROGRAMS = frozenset({"docker", "podman", "nerdctl"})
# With what a command may begin that starts docker in the end: another program, a word of the shell or of a list, a
# variable, a prompt (`$`, `root@host:~#`, `[me@host`). Of any other command docker is an argument.
_BEFORE = re.compile(
    r"sudo|env|exec|eval|command|nohup|time|timeout|nice|ionice|numactl|taskset|ssh|srun|mpirun|xargs|watch"
    r"|if|elif|while|until|do|then|else|RUN|run:|\W+|\d+\.|[A-Za-z_]\w*=.*|\$.*|.*[#$>%]|\[.*",
    re.DOTALL,
)
# Options of the client itself, before `run`, that take a value in the next word.
CLIENT_VALUES = frozenset({"-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "-n", "--namespace"})
# The program by name, by path, or by a variable that the text does not set: `$DOCKER`, `${DOCKER_CMD}`.
_PROGRAM = re.compile(r"(?:.*/)?(?:docker|podman|nerdctl)|\$\{?\w*docker\w*\}?", re.IGNORECASE)
NO_IMAGE = "no image is named"
_RUNS = re.compile(r"\b(?:docker|podman|nerdctl)\b.*?\b(?:run|create)\b", re.DOTALL)
# A shell's prompt for a continued line, copied along with a command.
_PROMPT = re.compile(r"(?<=\\\n)>[ \t]+")
_HINT = (
    "give a plain docker run line: build.py lint-run 'docker run --rm IMAGE'; "
    "a compose file: `build.py lint-run --file compose.yaml`"
)


@dataclass(frozen=True)
class RunText:
    """The containers of a text, in order, with a remark for a line without an image; and what of it is not read."""

    lines: tuple[Container | Remark, ...]
    unread: tuple[Unread, ...]


def run_lines(text: str) -> RunText:
    """Return the `docker run` and `docker create` lines of a shell text.

    Raises `UsageError` where there is none that names an image.
    """
    shell = read_shell(_PROMPT.sub("", text))
    found: list[Container | Remark] = []
    unread = list(shell.unread)
    for command in shell.commands:
        start = _options_at(command.words)
        if start and not _is_started(command.words):
            why = f"`{command.words[0]}` starts no docker: the docker run among its words is not read"
            unread.append(Unread(command.line, why))
        elif start:
            found.append(_run_line(command, start))
        elif any(map(_RUNS.search, command.words)):
            unread.append(Unread(command.line, "a docker run inside quotes or $(…) is not read: give it by itself"))
    if found and isinstance(found[0], Remark) and all(isinstance(one, Remark) for one in found):
        raise UsageError(NO_IMAGE, where="the command", hint=found[0].fix)
    if not found:
        one = unread[0] if unread else Unread(1, "there is no `docker run` in it")
        raise UsageError(one.why, where=f"the command:{one.line}" if unread else "the command", hint=_HINT)
    return RunText(tuple(found), tuple(sorted(unread, key=lambda one: one.line)))


def _options_at(words: Sequence[str]) -> int:
    """Return where the options of `docker [container] run|create` begin, 0 for another command."""
    number = next((n + 1 for n, word in enumerate(words) if _PROGRAM.fullmatch(word)), len(words))
    while number < len(words) and words[number].startswith("-"):
        number += 2 if words[number] in CLIENT_VALUES else 1
    number += words[number : number + 1] == ("container",)
    return number + 1 if words[number : number + 1] in (("run",), ("create",)) else 0


def _is_started(words: Sequence[str]) -> bool:
    """Whether a command that has docker among its words starts it, as far as its first word shows."""
    first = words[0]
    return bool(_BEFORE.fullmatch(first) or _PROGRAM.fullmatch(first))


def _run_line(command: ShellCommand, start: int) -> Container | Remark:
    options = read_options(command.words[start:])
    cuts = [
        misread(
            "cut", f"line {line}", f"line {line} does not continue, and options follow", "end it in a backslash alone"
        )
        for line in command.cuts
    ]
    rest, pasted = _without_pasted(options)
    if not rest:
        hint = "the image comes after the options; was it taken for the value of the last one?"
        word = f"docker {command.words[start - 1]}"
        fix = f"{cuts[-1].what}: {cuts[-1].fix}" if cuts else hint
        return Remark(Severity.ERROR, "image.none", word, f"{word}: {NO_IMAGE}", "docker refuses the line", fix)
    remarks = (*cuts, *pasted, *options.misread)
    return Container(rest[0], options.settings, tuple(rest[1:]), line=command.line, misread=remarks)


def _without_pasted(options: Options) -> tuple[Sequence[str], list[Remark]]:
    """Return the words from the image on, without a `docker pull` that was pasted before the image.

    An image called docker is right where the container gets the engine's socket.
    """
    rest = options.rest
    has_socket = any("docker.sock" in (setting.value or "") for setting in options.settings)
    count = 3 if rest and rest[0] == "sudo" else 2
    command = rest[count - 2 : count]
    if len(rest) <= count or command[0] not in PROGRAMS or command[1] not in {"pull", "run"} or has_socket:
        return rest, []
    word = " ".join(rest[:count])
    what = f"{word} is where the image goes: docker takes {rest[0]} for the image"
    return rest[count:], [misread("image.pasted", word, what, f"leave {word} out: {rest[count]} is the image")]
