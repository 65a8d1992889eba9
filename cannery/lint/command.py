"""Reads the `docker run` lines of a shell text, and docker's options up to the image."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.lint.container import OPEN, OUTPUT, Container, Remark, Setting
from cannery.vocab import Severity, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS = frozenset({"docker", "podman", "nerdctl"})
# First words of commands that may start docker: a wrapper program, a shell keyword, a list marker, a variable, a prompt
# (`$`, `root@host:~#`, `[me@host`). In any other command, `docker` is only an argument.
_BEFORE = re.compile(
    r"sudo|env|exec|eval|command|nohup|time|timeout|nice|ionice|numactl|taskset|ssh|srun|mpirun|xargs|watch"
    r"|if|elif|while|until|do|then|else|RUN|run:|\W+|\d+\.|[A-Za-z_]\w*=.*|\$.*|.*[#$>%]|\[.*",
    re.DOTALL,
)
# Options of the client, before `run`, whose value is the next word.
CLIENT_VALUES = frozenset({"-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "-n", "--namespace"})
# The program: a name, a path, or a variable that the text does not set (`$DOCKER`, `${DOCKER_CMD}`).
_PROGRAM = re.compile(r"(?:.*/)?(?:docker|podman|nerdctl)|\$\{?\w*docker\w*\}?", re.IGNORECASE)
NO_IMAGE = "no image is named"
_RUNS = re.compile(r"\b(?:docker|podman|nerdctl)\b.*?\b(?:run|create)\b", re.DOTALL)
# The shell's prompt for a continued line, which was copied with the command.
_PROMPT = re.compile(r"(?<=\\\n)>[ \t]+")
_HINT = (
    "give a plain docker run line: build.py lint-run 'docker run --rm IMAGE'; "
    "a compose file: `build.py lint-run --file compose.yaml`"
)
# Options of docker, podman and nerdctl: without a value, and with one.
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
# The similarity from which an unknown option is read as a misspelt docker option.
SLIP = 0.75
_IMAGE_NAME = re.compile(r"ima?ge?|tag", re.IGNORECASE)
_IMAGE = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)*:[\w.-]+(?:@.*)?")
# Words that contain options: an array, `${MORE:-}`, `${MORE:---rm}`, the output of a command with options.
_HOLDS_OPTIONS = re.compile(r"\$\{\w+(?:\[[@*]\]|:?-(?:-.*)?)\}$|(?:\$\(|`).*[\s\"'](?:--\w|-v\b)", re.DOTALL)
# {code of a remark: reason}.
_WHY = {
    "cut": "the shell ends the command there, and starts the next line as a command of its own",
    "option": "docker refuses the whole command, and starts nothing",
}


_SINGLE, _DOUBLE = r"'[^']*'", rf'"(?:\\.|{OUTPUT}|[^"\\])*+"'
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
_ASSIGNERS = frozenset({"export", "declare", "local", "readonly", "typeset", "do", "then", "else", "{", "}"})
# Linux allows 2 MiB of arguments for a command.
MOST_CHARACTERS = 1 << 21


@dataclass(frozen=True)
class ShellCommand:
    """The words of one command, its first line, and the lines in it that are missing a backslash at the end."""

    words: tuple[str, ...]
    line: int
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unread:
    """A part of a text that is not read: its line, and why."""

    line: int
    why: str


class ShellText:
    """Splits a shell text into `commands`; `unread` are the parts that it cannot read.

    It reads continued lines, comments, quotes, and the variables and literal arrays that the text sets once. Parts that
    only a shell can evaluate are kept as written: `$(…)`, any other variable, a `<placeholder>`. Raises `UsageError`
    if the text has too many words after variables are replaced.
    """

    def __init__(self, text: str, known: dict[str, tuple[str, ...] | None] | None = None) -> None:
        """Read `text`. With `known` ({variable: value, or None if it is set twice}), it is the content of an array."""
        self.commands: list[ShellCommand] = []
        self.unread: list[Unread] = []
        self.words: list[str] = []
        self._known = {} if known is None else known
        self._goes_on = False  # whether the next part belongs to the last word
        self._cuts: list[int] = []
        self._begin = 1
        self._room = MOST_CHARACTERS
        line = 1
        for match in _PART.finditer(text.replace("\r\n", "\n")):
            self._take(match, line)
            line += match[0].count("\n")
        if known is None:
            self._end()

    def _take(self, match: re.Match[str], line: int) -> None:
        kind, text = match.lastgroup, match[0]
        if kind in {"blank", "cut", "option_line", "end", "array"}:
            self._goes_on = False
        if kind == "end" or (kind == "option_line" and not self.words):
            self._end()
        elif kind in {"cut", "option_line"} and self.words:
            self._cuts.append(line + text.startswith("\\\n"))
        elif kind == "array":
            items = ShellText(match["items"].replace("\n", " \\\n"), self._known)
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
            # Outside quotes, a value with blanks becomes several words, and an empty value becomes none.
            self._add(*(value.split() if value != text else (text,)))
        elif kind == "double":
            self._add(_IN_DOUBLE.sub(self._in_double, text[1:-1]))
        else:
            if kind == "braces":
                self.unread.append(Unread(line, f"{text} is several words to a shell: write them out"))
            self._add(text[1:-1] if kind == "single" else text[1:] if kind == "escaped" else text)

    def _add(self, *texts: str) -> None:
        """Append to the last word, or add new words."""
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
        if match["escaped"] is None:
            return self._value(match, match[0])
        return {"\n": "", "$": "$", "`": "`", '"': '"', "\\": "\\"}.get(match["escaped"], match[0])

    def _set(self, name: str, value: tuple[str, ...] | None) -> None:
        """Store the value of a variable. A variable that is set twice has no known value."""
        self._known[name] = None if name in self._known else value

    def _end(self) -> None:
        """Store the command that ends here. If it has only assignments, store their values."""
        if self.words:
            self.commands.append(ShellCommand(tuple(self.words), self._begin, tuple(self._cuts)))
            rest = [word for word in self.words if word not in _ASSIGNERS and not word.startswith("-")]
            matches = [match for word in rest if (match := _ASSIGNED.fullmatch(word))]
            for match in matches if len(matches) == len(rest) else ():
                # `+=`, or the output of a command.
                is_unsure = match[2] or re.search(r"\$\(|`", match[3])
                self._set(match[1], None if is_unsure else (match[3],))
        self.words, self._cuts, self._goes_on = [], [], False


@dataclass(frozen=True)
class RunText:
    """The containers of a text in order, or a remark for a line without an image, and the parts that were not read."""

    lines: tuple[Container | Remark, ...]
    unread: tuple[Unread, ...]


def run_lines(text: str) -> RunText:
    """Return the `docker run` and `docker create` lines of a shell text.

    Raises `UsageError` if no line names an image.
    """
    shell = ShellText(_PROMPT.sub("", text))
    found: list[Container | Remark] = []
    unread = list(shell.unread)
    for command in shell.commands:
        start = _options_at(command.words)
        if start and not (_BEFORE.fullmatch(command.words[0]) or _PROGRAM.fullmatch(command.words[0])):
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
    """Return the index of the first option of `docker [container] run|create`; 0 for another command."""
    number = next((n + 1 for n, word in enumerate(words) if _PROGRAM.fullmatch(word)), len(words))
    while number < len(words) and words[number].startswith("-"):
        number += 2 if words[number] in CLIENT_VALUES else 1
    number += words[number : number + 1] == ("container",)
    return number + 1 if words[number : number + 1] in (("run",), ("create",)) else 0


def _run_line(command: ShellCommand, start: int) -> Container | Remark:
    words = command.words[start:]
    options = Options(words)
    unclear = [setting.word for setting in options.settings if not setting.key]
    if not options.rest and unclear:  # `$X --model x`: the last unreadable word is the image
        options = Options(words, unclear[-1])
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
        return Remark(Severity.ERROR, "run.image.none", f"{word}: {NO_IMAGE}", "docker refuses the line", fix, word)
    remarks = (*cuts, *pasted, *options.misread)
    return Container(rest[0], tuple(options.settings), tuple(rest[1:]), line=command.line, misread=remarks)


def _without_pasted(options: Options) -> tuple[Sequence[str], list[Remark]]:
    """Return the words from the image on, without a `docker pull` that was pasted before the image.

    If the container gets the engine's socket, the image may really be called docker.
    """
    rest = tuple(options.rest)
    has_socket = any("docker.sock" in (setting.value or "") for setting in options.settings)
    count = 3 if rest and rest[0] == "sudo" else 2
    command = rest[count - 2 : count]
    if len(rest) <= count or command[0] not in PROGRAMS or command[1] not in {"pull", "run"} or has_socket:
        return rest, []
    word = " ".join(rest[:count])
    what = f"{word} is where the image goes: docker takes {rest[0]} for the image"
    return rest[count:], [misread("image.pasted", word, what, f"leave {word} out: {rest[count]} is the image")]


def misread(code: str, word: str, what: str, fix: str) -> Remark:
    """Return the remark about a word that docker reads in another way than intended."""
    return Remark(
        Severity.ERROR, f"run.{code}", what, _WHY.get(code, "the command does not do what it looks like"), fix, word
    )


class Options:
    """The words after `run`: the settings in order, and in `rest` the words from the image on.

    A setting without a key is a word that only a shell can evaluate; it may contain any option. `misread` are remarks
    on words that docker reads in another way than intended. `image` is such a word that is known to be the image.
    """

    def __init__(self, words: Sequence[str], image: str = "") -> None:
        self.rest = deque(words)
        self._image = image
        self.settings: list[Setting] = []
        self.misread: list[Remark] = []
        while self.rest:
            value = self.rest[0]
            if value == "--":
                self.rest.popleft()
                return
            if value.startswith("--"):
                self.rest.popleft()
                name, equals, given = value[2:].partition("=")
                key = self._known(ALIASES.get(name, name))
                if equals or key in SWITCHES:
                    self.settings.append(Setting(key, given if equals else None, value))
                else:
                    self._with_next(key, value)
            elif value.startswith("-") and value != "-":
                self.rest.popleft()
                self._short(value)
            elif self._holds_options(value):
                self.settings.append(Setting("", None, self.rest.popleft()))
            else:
                return

    def _holds_options(self, value: str) -> bool:
        """Whether a word that only a shell can evaluate has options, and is not the image."""
        if not value.startswith(("$", "`")) or len(self.rest) == 1 or value == self._image:
            return False
        after = self.rest[1]
        goes_on = after.startswith(("-", "$", "`", "<")) or _IMAGE.fullmatch(after)
        return bool(_HOLDS_OPTIONS.match(value) or (goes_on and not _IMAGE_NAME.search(value)))

    def _known(self, name: str) -> str:
        """Return the option of that name, or the nearest one if docker does not have it."""
        if name in SWITCHES | VALUES:
            return name
        what = f"docker run has no option --{name}"
        near = nearest(name, sorted(SWITCHES | VALUES), count=1, likeness=SLIP)
        self.misread.append(misread("option", f"--{name}", what, f"--{near[0]}" if near else _HELP))
        return near[0] if near else name

    def _with_next(self, key: str, word: str) -> None:
        """Add an option whose value is the next word. An unknown option before another option has no value."""
        has_value = bool(self.rest) and (key in VALUES or not self.rest[0].startswith("-"))
        value = self.rest.popleft() if has_value else None
        self.settings.append(Setting(key, value, word if value is None else f"{word} {value}"))

    def _short(self, word: str) -> None:
        """Read a word of short options: switches, then maybe an option with its value in the rest or the next word."""
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
