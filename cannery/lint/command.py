"""The `docker run` lines of a shell text, and docker's options: the words up to the image as docker reads them."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.lint.container import Container, Remark, Setting
from cannery.lint.shell import Unread, read_shell
from cannery.vocab import Severity, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

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
# Options of docker's, podman's and nerdctl's: without a value, and with one.
_SWITCHES = """
detach disable-content-trust env-host help http-proxy init interactive no-healthcheck no-hosts oom-kill-disable
privileged publish-all quiet read-only replace rm rmi sig-proxy tls-verify tty use-api-socket
"""
_VALUES = """
add-host annotation arch attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-conf cgroup-parent
cgroupns cidfile cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus
cpuset-cpus cpuset-mems detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps
device-write-iops dns dns-option dns-search domainname entrypoint env env-file expose gpus group-add health-cmd
health-interval health-retries health-start-interval health-start-period health-timeout hostname io-maxbandwidth
io-maxiops ip ip6 ipc isolation kernel-memory label label-file link link-local-ip log-driver log-opt mac-address
memory memory-reservation memory-swap memory-swappiness mount name network network-alias oom-score-adj os pid
pids-limit platform publish pull restart rootfs runtime secret security-opt shm-size stop-signal stop-timeout
storage-opt sysctl systemd tmpfs tz ulimit umask user userns uts variant volume volume-driver volumes-from workdir
"""
SWITCHES, VALUES = frozenset(_SWITCHES.split()), frozenset(_VALUES.split())
ALIASES = {"net": "network", "net-alias": "network-alias", "dns-opt": "dns-option"}
SHORT_SWITCHES = {"d": "detach", "i": "interactive", "t": "tty", "P": "publish-all", "q": "quiet"}
SHORT_VALUES = {
    "a": "attach",
    "c": "cpu-shares",
    "e": "env",
    "h": "hostname",
    "l": "label",
    "m": "memory",
    "p": "publish",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
_HELP = "see `docker run --help`"
# How alike an option of docker's must be to be taken for the one that is meant.
SLIP = 0.75
_IMAGE_NAME = re.compile(r"ima?ge?|tag", re.IGNORECASE)
_IMAGE = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)*:[\w.-]+(?:@.*)?")
# What holds options, whatever follows: an array, `${MORE:-}`, `${MORE:---rm}`, the output of a command with options.
_HOLDS_OPTIONS = re.compile(r"\$\{\w+(?:\[[@*]\]|:?-(?:-.*)?)\}$|(?:\$\(|`).*[\s\"'](?:--\w|-v\b)", re.DOTALL)
# Of each code: why docker does not take the word as its writer means it.
_WHY = {
    "cut": "the shell ends the command there, and starts the next line as a command of its own",
    "option": "docker refuses the whole command, and starts nothing",
}


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


@dataclass(frozen=True)
class Options:
    """What the words after `run` ask for: settings, in order, and the words from the image on.

    A setting without a key is a word that only a shell can read: it may hold any option. `misread` are remarks on words
    that docker does not take as their writer means them.
    """

    settings: tuple[Setting, ...]
    rest: tuple[str, ...]
    misread: tuple[Remark, ...]


def read_options(words: Sequence[str]) -> Options:
    """Return what the words after `run` ask for, as docker reads them; a misspelt option counts as the one meant."""
    found = _Reader(words)
    found.read()
    unclear = [setting.word for setting in found.settings if not setting.key]
    if not found.left and unclear:  # `$X --model x`: the last of them is the image
        found = _Reader(words, unclear[-1])
        found.read()
    return Options(tuple(found.settings), tuple(found.left), tuple(found.misread))


def misread(code: str, word: str, what: str, fix: str) -> Remark:
    """Return the remark about a word that docker does not take as its writer means it."""
    return Remark(Severity.ERROR, code, word, what, _WHY.get(code, "the command does not do what it looks like"), fix)


class _Reader:
    def __init__(self, words: Sequence[str], image: str = "") -> None:
        """Take the words after `run`; `image` is an open word that is the image."""
        self.left = deque(words)
        self._image = image
        self.settings: list[Setting] = []
        self.misread: list[Remark] = []

    def read(self) -> None:
        while self.left:
            value = self.left[0]
            if value == "--":
                self.left.popleft()
                return
            if value.startswith("--"):
                self.left.popleft()
                self._long(value)
            elif value.startswith("-") and value != "-":
                self.left.popleft()
                self._short(value)
            elif self._holds_options(value):
                self.settings.append(Setting("", None, self.left.popleft()))
            else:
                return

    def _holds_options(self, value: str) -> bool:
        """Whether an open word holds options, and is not the image."""
        if not value.startswith(("$", "`")) or len(self.left) == 1 or value == self._image:
            return False
        after = self.left[1]
        goes_on = after.startswith(("-", "$", "`", "<")) or _IMAGE.fullmatch(after)
        return bool(_HOLDS_OPTIONS.match(value) or (goes_on and not _IMAGE_NAME.search(value)))

    def _long(self, word: str) -> None:
        name, equals, given = word[2:].partition("=")
        key = self._known(ALIASES.get(name, name))
        if equals or key in SWITCHES:
            self.settings.append(Setting(key, given if equals else None, word))
        else:
            self._with_next(key, word)

    def _known(self, name: str) -> str:
        """Return the option that is meant: the nearest one where docker has none of that name."""
        if name in SWITCHES | VALUES:
            return name
        what = f"docker run has no option --{name}"
        near = nearest(name, sorted(SWITCHES | VALUES), count=1, likeness=SLIP)
        self.misread.append(misread("option", f"--{name}", what, f"--{near[0]}" if near else _HELP))
        return near[0] if near else name

    def _with_next(self, key: str, word: str) -> None:
        """Add an option whose value is the next word; an unknown option has none where an option follows."""
        has_value = bool(self.left) and (key in VALUES or not self.left[0].startswith("-"))
        value = self.left.popleft() if has_value else None
        self.settings.append(Setting(key, value, word if value is None else f"{word} {value}"))

    def _short(self, word: str) -> None:
        """Read a bundle: switches, and perhaps an option whose value is the rest of the word, or the next word."""
        rest = word[1:].lstrip("".join(SHORT_SWITCHES))
        for letter in word[1 : len(word) - len(rest)]:
            self.settings.append(Setting(SHORT_SWITCHES[letter], None, f"-{letter}"))
        letter, given = rest[:1], rest[1:].removeprefix("=")
        if letter and letter not in SHORT_VALUES:
            self.misread.append(misread("option", word, f"docker run has no option -{letter}", _HELP))
        elif given:
            self.settings.append(Setting(SHORT_VALUES[letter], given, f"-{letter} {given}"))
        elif letter:
            self._with_next(SHORT_VALUES[letter], f"-{letter}")
