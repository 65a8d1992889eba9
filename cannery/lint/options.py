"""The options of `docker run`, and a reader of them: the words up to the image as docker reads them."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.lint.container import Remark, Setting
from cannery.vocab import Severity, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

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


# Of each code: why docker does not take the word as its writer means it.
_WHY = {
    "cut": "the shell ends the command there, and starts the next line as a command of its own",
    "option": "docker refuses the whole command, and starts nothing",
}


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
