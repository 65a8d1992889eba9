"""Options of docker that stand behind the image or behind the program: they are the container's arguments there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.core.lint_run.case import Edit, remark
from cannery.core.run_options import SHORT_SWITCHES, is_option
from cannery.core.run_words import Reader
from cannery.core.shell_words import Word, quoted
from cannery.core.words import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.core.lint_run.case import Case, Remark

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
}
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
    lost = lost_options(words)
    if lost and _is_value_of_entry_point(case):
        yield _entry_words(case)
        return
    is_first = not entry and words[0].startswith("-")
    where = image if is_first or entry else f"{program}, behind {image}"
    moved = _leading(words) if lost and is_first else ()
    for option in lost:
        sure = is_first or (program in SHELLS and _is_for_shell(words[0 if entry else 1 : option.at]))
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


def lost_options(words: tuple[str, ...]) -> tuple[Lost, ...]:
    """Return what of the words behind an image can only have been meant for docker; `--device npu` is one of vllm's."""
    found = []
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        after = value if equals else words[at + 1] if at + 1 < len(words) else ""
        if (pattern := DOCKERS.get(name)) is not None and pattern.match(after):
            alone = bool(equals) or name == "--privileged" or not after
            found.append(Lost(at, words[at : at + (1 if alone else 2)]))
    return tuple(found)


def _leading(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that docker would read as options, up to one that it has not: `--rm --name a` of `--rm …`."""
    reader = Reader([Word(quoted(word), word, 0) for word in words])
    reader.read()
    return () if reader.misread or reader.opaque else words[: len(words) - len(reader.left)]


def _is_for_shell(before: tuple[str, ...]) -> bool:
    """Whether a shell takes what follows for an option of its own, not for an argument of a script or of `-c`."""
    lost = {place for option in lost_options(before) for place in option.places}
    return all(word.startswith("-") and "c" not in word for at, word in enumerate(before) if at not in lost)


def _is_value_of_entry_point(case: Case) -> bool:
    """Whether the word that docker takes for the image is the rest of `--entrypoint sleep infinity`."""
    return bool(case.container.last("entrypoint")) and not re.search(r"[/:$@<]", case.container.image)


def _entry_words(case: Case) -> Remark:
    setting, image = case.container.last("entrypoint"), case.container.image
    shown = setting.word if setting else ""
    what = f"{shown} {image}: --entrypoint takes one word, and docker takes {image} for the image"
    fix = f"{shown}, and {image} behind the image"
    return remark(Severity.ERROR, "entrypoint.words", image, what, WHY, fix)
