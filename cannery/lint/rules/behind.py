"""Options of docker that stand behind the image or behind the program: they are the container's arguments there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.lint.case import Edit, remark
from cannery.lint.run_options import ALIASES, SHORT_SWITCHES, SWITCHES, VALUES, is_option
from cannery.lint.run_words import Reader
from cannery.lint.shell_words import Word, quoted
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark

# Options of docker that no program has with a value like this. `http://…` is no mount.
_MOUNTED = re.compile(r"[^:]+:/(?!/)")
DOCKERS = {
    "--device": re.compile(r"/dev/"),
    "-v": _MOUNTED,
    "--volume": _MOUNTED,
    "--mount": re.compile(r".*(?:target|dst|destination)="),
    "--privileged": re.compile(""),
    "--shm-size": re.compile(r"\d"),
    "--group-add": re.compile(r"."),
    "--cap-add": re.compile(r"."),
    "--ipc": re.compile(r"host$"),
    "--pid": re.compile(r"host$"),
    "--net": re.compile(r"host$"),
    "--network": re.compile(r"host$"),
    "--runtime": re.compile(r"ascend$", re.IGNORECASE),
}
# Docker's long options without those that a shell has too (`interactive` is zsh's).
NO_SHELLS = (SWITCHES | VALUES | {*ALIASES}) - {"help", "interactive"}
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
ENGINES = frozenset({"docker", "podman", "nerdctl"})
WHY = "docker's own options end where the image stands"


@dataclass(frozen=True)
class Lost:
    """An option of docker's at `at`, and the words behind it that are its value, among those behind the image."""

    at: int
    words: tuple[str, ...]

    @property
    def shown(self) -> str:
        """How a message shows it."""
        return " ".join(self.words)

    @property
    def places(self) -> tuple[int, ...]:
        """The places of its words."""
        return tuple(range(self.at, self.at + len(self.words)))


def behind(case: Case) -> Iterator[Remark]:
    """Name options of docker among the container's arguments, and put them before the image where they do nothing."""
    words, image = case.container.command, case.container.image
    entry = case.container.value("entrypoint").split()
    program = PurePosixPath((entry or words or ("",))[0]).name
    if not words or program in ENGINES:
        return
    shell = () if program not in SHELLS else words if entry else words[1:]
    first = len(words) - len(shell)
    end = first + _shells_own(shell)  # of a shell's own options, which begin at `first`
    lost = lost_options(words, first, end)
    if lost and _is_value_of_entry_point(case):
        yield _entry_words(case)
        return
    is_first = not entry and words[0].startswith("-")
    where = image if is_first or entry else f"{program}, behind {image}"
    moved = _leading(words) if lost and is_first else ()
    for option in lost:
        sure = is_first or (bool(shell) and option.at < end)
        what = f"{option.shown} stands behind {where}: docker hands it to the program, and does nothing of it"
        edit = Edit(-1, tuple(map(quoted, option.words)), option.places)
        edits = [] if not sure or option.at < len(moved) else [edit]
        yield remark(
            Severity.ERROR if sure else Severity.WARNING,
            "image.behind",
            option.shown,
            what,
            WHY,
            f"{option.shown} before the image",
            *(edits or ([Edit(-1, tuple(map(quoted, moved)), tuple(range(len(moved))))] if sure else [])),
        )
    if is_first and not moved and not any(option.at == 0 for option in lost):
        yield from _first_word(case)


def _first_word(case: Case) -> Iterator[Remark]:
    """Judge an option in the place of the program: an image's entry point may take it; few for NPUs have one."""
    word, image = case.container.command[0], case.container.image
    if is_option(word) or case.told.ascend:
        what = f"{word} stands behind {image}: it is the container's command, not an option"
        is_bundle = len(word) > 2 and {*word[1:]} <= {*SHORT_SWITCHES}
        edits = [Edit(-1, (word,), (0,))] if is_bundle else []
        yield remark(Severity.WARNING, "image.behind", word, what, WHY, "put it before the image", *edits)


def lost_options(words: tuple[str, ...], first: int = 0, end: int = 0) -> tuple[Lost, ...]:
    """Return what of the words behind an image can only have been meant for docker; `--device npu` is one of vllm's.

    Those from `first` to `end` are a shell's options, where any is docker's that no shell has.
    """
    return tuple(
        Lost(at, words[at : at + count])
        for at in range(len(words))
        if (count := _dockers(words, at) or (_no_shells(words, at) if first <= at < end else 0))
    )


def _dockers(words: tuple[str, ...], at: int) -> int:
    """Return of how many words the option of docker's at `at` is, 0 where it may be a program's."""
    name, equals, value = words[at].partition("=")
    after = value if equals else words[at + 1] if at + 1 < len(words) else ""
    if (pattern := DOCKERS.get(name)) is None or not pattern.match(after):
        return 0
    return 1 if equals or name == "--privileged" or not after else 2


def _no_shells(words: tuple[str, ...], at: int) -> int:
    """Return of how many words the option at `at` is that docker has and no shell, 0 for another word."""
    name, equals, _ = words[at].partition("=")
    if not name.startswith("--") or name[2:] not in NO_SHELLS:
        return 0
    if equals or name[2:] in SWITCHES:
        return 1
    return 2 if at + 1 < len(words) and not words[at + 1].startswith("-") else 0


def _leading(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that docker would read as options, up to one that it has not: `--rm --name a` of `--rm …`."""
    reader = Reader([Word(quoted(word), word, 0) for word in words])
    reader.read()
    return () if reader.misread or reader.opaque else words[: len(words) - len(reader.left)]


def _shells_own(words: tuple[str, ...]) -> int:
    """Return how many words a shell takes for options of its own: up to a script, or `-c`, whose arguments follow."""
    at = 0
    while at < len(words):
        count = _dockers(words, at) or _no_shells(words, at)
        if not count and (not words[at].startswith("-") or "c" in words[at]):
            return at
        at += count or 1
    return at


def _is_value_of_entry_point(case: Case) -> bool:
    """Whether the word that docker takes for the image is the rest of `--entrypoint sleep infinity`."""
    return bool(case.container.last("entrypoint")) and not re.search(r"[/:$@<]", case.container.image)


def _entry_words(case: Case) -> Remark:
    setting, image = case.container.last("entrypoint"), case.container.image
    shown = setting.word if setting else ""
    what = f"{shown} {image}: --entrypoint takes one word, and docker takes {image} for the image"
    fix = f"{shown}, and {image} behind the image"
    return remark(Severity.ERROR, "entrypoint.words", image, what, WHY, fix)
