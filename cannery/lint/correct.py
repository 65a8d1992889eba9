"""A `docker run` line written again, with the fixes that can be made in one go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cannery.lint.options import read_options
from cannery.lint.rules import lint_container
from cannery.lint.shell import Word, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.lint.case import Edit, Ground, Remark
    from cannery.lint.command import RunLine
    from cannery.lint.container import Setting


@dataclass(frozen=True)
class Corrected:
    """The corrected line, "" where there is none to print, and what is left to remark on it."""

    text: str = ""
    left: tuple[Remark, ...] = ()


def correct(line: RunLine, remarks: Sequence[Remark], ground: Ground) -> Corrected:
    """Return the line with the fix of every remark that has one.

    There is none to print where no remark has a fix, where docker does not know an option that nothing replaces, or
    where the fixes bring up another one to make.
    """
    edits = [edit for one in remarks for edit in one.edits]
    if not edits or not all(one.is_mended for one in line.misread):
        return Corrected()
    taken = {place for edit in edits for place in edit.taken}
    settings = _changed(line.container.settings, edits)
    command = tuple(word for place, word in enumerate(line.container.command) if place not in taken)
    container = replace(line.container, settings=settings, command=command)
    left = lint_container(container, ground)
    if any(one.edits for one in left):
        return Corrected()
    tail = [word for place, word in enumerate(line.tail, start=-1) if place not in taken]
    options = [" ".join(setting.written) for setting in settings if setting.written]
    return Corrected(" \\\n    ".join([" ".join(line.head), *options, " ".join(tail)]), left)


def _changed(settings: Sequence[Setting], edits: Sequence[Edit]) -> tuple[Setting, ...]:
    """Return the settings with the edits made: of two edits of one setting the first counts, the graver remark's."""
    changes: dict[int, tuple[Setting, ...]] = {}
    for edit in edits:
        if edit.old is not None:
            changes.setdefault(edit.old.at, _settings(edit.words))
    added = [setting for edit in edits if edit.old is None for setting in _settings(edit.words)]
    kept = [one for setting in settings for one in changes.get(setting.at, (setting,))]
    unique: dict[tuple[str, object], Setting] = {}
    for one in (*kept, *added):
        # No option twice with one value: of two slips of one word, or of one that is there already.
        unique.setdefault((one.key, one.value or one.written), one)
    return tuple(replace(setting, at=number) for number, setting in enumerate(unique.values()))


def _settings(words: Sequence[str]) -> tuple[Setting, ...]:
    # Docker's options end before the image.
    return (
        read_options([*(Word(quoted(word), word) for word in words), Word("image", "image")]).settings if words else ()
    )
