"""What is wrong with a user's own `docker run` line or compose service: small pure functions, each yielding remarks.

They know no host: what only a host can tell is `doctor`'s. Each module holds the rules of one subject; `RULES` lists
them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.compat.findings import RANK
from cannery.errors import UsageError
from cannery.lint.case import Case, Edit, remark
from cannery.lint.command import NO_IMAGE, NoImage, run_lines
from cannery.lint.compose_words import of_compose
from cannery.lint.rules.behind import behind
from cannery.lint.rules.closed import closed_nodes, mounted_nodes, same_target
from cannery.lint.rules.driver import driver_mounts, smi_mount
from cannery.lint.rules.engine import gpus, mixed, network, platform, privileged
from cannery.lint.rules.environment import chip_words, entry_point, lists, preload, split_value
from cannery.lint.rules.image import chip, registry, standin, strange_image
from cannery.lint.rules.memory import shared_memory
from cannery.lint.rules.mount_text import unread
from cannery.lint.rules.mounts import bad_paths, hidden, twice
from cannery.lint.rules.nodes import (
    endless_numbers,
    foreign_nodes,
    missing_cards,
    missing_managers,
    unknown_nodes,
)
from cannery.lint.rules.user import caches, group
from cannery.lint.rules.visible import other_makers, own_variable, runtime_variable
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cannery.lint.case import Ground, Remark
    from cannery.lint.command import RunLine
    from cannery.lint.container import Container

# More than any line has needed; two edits that undo each other would go on for ever.
MOST_ROUNDS = 8

RULES: tuple[Callable[[Case], Iterable[Remark]], ...] = (
    split_value,
    strange_image,
    behind,
    unknown_nodes,
    endless_numbers,
    missing_managers,
    missing_cards,
    foreign_nodes,
    mounted_nodes,
    closed_nodes,
    same_target,
    driver_mounts,
    smi_mount,
    runtime_variable,
    own_variable,
    other_makers,
    privileged,
    mixed,
    gpus,
    network,
    platform,
    shared_memory,
    unread,
    bad_paths,
    twice,
    hidden,
    lists,
    preload,
    entry_point,
    chip_words,
    chip,
    standin,
    registry,
    group,
    caches,
)


def lint_container(container: Container, ground: Ground) -> tuple[Remark, ...]:
    """Return every remark about one container, errors first, in the order of the rules."""
    case = Case(container, ground)
    found = [one for rule in RULES for one in rule(case)]
    return _in_order(map(of_compose, found) if container.where else found)


def lint_line(line: RunLine, ground: Ground) -> tuple[Remark, ...]:
    """Return every remark about a `docker run` line: what docker reads otherwise than meant, and the container's."""
    misread = [
        remark(
            Severity.ERROR,
            one.code.removeprefix("run."),
            one.word,
            one.what,
            "the command does not do what it looks like",
            one.fix or one.meant or "write it as `docker run --help` does",
            *([Edit(-1)] if one.meant or one.code == "run.cut" else []),
        )
        for one in line.misread
    ]
    return _in_order([*misread, *lint_container(line.container, ground)])


def corrected(line: RunLine, remarks: Sequence[Remark]) -> str:
    """Return the line with every edit of `remarks` made, "" where none of them has one.

    Of two edits of one option the first counts, which is the graver remark's.
    """
    edits = [edit for one in remarks for edit in one.edits]
    if not edits:
        return ""
    changes: dict[int, tuple[str, ...]] = {}
    for edit in edits:
        if edit.at >= 0:
            changes.setdefault(edit.at, edit.words)
    added = tuple(dict.fromkeys(edit.words for edit in edits if edit.at < 0 and edit.words))
    return line.text(changes, added, frozenset(place for edit in edits for place in edit.taken))


@dataclass(frozen=True)
class Mended:
    """A line with every change made that can be made ("" for none to make), and what is left to remark of it."""

    text: str
    left: tuple[Remark, ...]

    @property
    def open(self) -> tuple[str, ...]:
        """The codes of the errors and warnings that are left, each once."""
        grave = (one.finding for one in self.left if one.finding.severity is not Severity.NOTE)
        return tuple(dict.fromkeys(finding.code for finding in grave))


def mend(line: RunLine, ground: Ground) -> Mended:
    """Correct `line`, and what came of it, until no edit changes anything: one brings to light what another mends."""
    text, left = "", lint_line(line, ground)
    for _ in range(MOST_ROUNDS):
        changed = corrected(line, left)
        if changed in {"", text}:
            break
        try:
            line = _read_again(changed, line)
            if line.doubles:  # of two slips of one word, or of one that stands there already
                line = _read_again(line.text(dict.fromkeys(line.doubles, ()), ()), line)
        except (UsageError, ValueError):
            # Of words that no engine takes: the line before that is the best there is.
            break
        text, left = line.text({}, ()), lint_line(line, ground)
    return Mended(text, left)


def _read_again(text: str, before: RunLine) -> RunLine:
    """Read one line that was written from `before`. Raises `UsageError` or `ValueError` where it is none any more."""
    (line,) = run_lines(text, before.known)
    if isinstance(line, NoImage):
        raise UsageError(NO_IMAGE, hint=line.hint)
    return line


def _in_order(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    return tuple(sorted(dict.fromkeys(remarks), key=lambda one: RANK[one.finding.severity]))
