"""What is wrong with a container that somebody asks for: small pure functions, each of which yields remarks.

They know no host: what only a host shows is `doctor`'s. Each module holds the rules of one subject; `RULES` lists all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import RANK
from cannery.lint.case import Case, Edit, Remark
from cannery.lint.rules.engine import caches, gpus, group, mixed, platform, privileged, shared_memory
from cannery.lint.rules.environment import (
    lists,
    own_variable,
    preload,
    runtime_variable,
)
from cannery.lint.rules.image import behind, chip, registry, standin, strange_image
from cannery.lint.rules.mounts import driver_mounts, empty_volumes, hidden, refused, smi_mount
from cannery.lint.rules.nodes import (
    closed_nodes,
    foreign_nodes,
    missing_cards,
    missing_managers,
    mounted_nodes,
    unknown_nodes,
)
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cannery.lint.case import Ground
    from cannery.lint.command import RunLine
    from cannery.lint.container import Container

RULES: tuple[Callable[[Case], Iterable[Remark]], ...] = (
    strange_image,
    behind,
    unknown_nodes,
    missing_managers,
    missing_cards,
    foreign_nodes,
    mounted_nodes,
    closed_nodes,
    driver_mounts,
    smi_mount,
    runtime_variable,
    own_variable,
    privileged,
    mixed,
    gpus,
    platform,
    shared_memory,
    refused,
    empty_volumes,
    hidden,
    lists,
    preload,
    chip,
    standin,
    registry,
    group,
    caches,
)


def lint_container(container: Container, ground: Ground) -> tuple[Remark, ...]:
    """Return every remark about one container, errors first, in the order of the rules."""
    case = Case(container, ground)
    return in_order([*_not_read(container), *(one for rule in RULES for one in rule(case))])


def lint_line(line: RunLine, ground: Ground) -> tuple[Remark, ...]:
    """Return every remark about a `docker run` line: what docker reads otherwise than meant, and the container's."""
    why = "the command does not do what it looks like"
    misread = [
        Remark(Severity.ERROR, one.code, one.word, one.what, why, one.fix, (Edit(),) if one.is_mended else ())
        for one in line.misread
    ]
    return in_order([*misread, *lint_container(line.container, ground)])


def _not_read(container: Container) -> Iterator[Remark]:
    """Note each word that only a shell can read, or another file."""
    at = f" in the command of line {container.line}" if container.line else ""
    for word in container.opaque:
        what = f"{word}{at} is not read: only a shell, or the file that is named, shows what it brings"
        fix = "write its options out to have them judged"
        yield Remark(Severity.NOTE, "text.unread", word, what, "it may bring any option", fix)


def in_order(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Return remarks, each once, errors first."""
    return tuple(sorted(dict.fromkeys(remarks), key=lambda one: RANK[one.severity]))
