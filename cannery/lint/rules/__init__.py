"""What is wrong with a container that somebody asks for: small pure functions, each of which yields remarks.

They know no host: what only a host shows is `doctor`'s. Each module holds the rules of one subject; `RULES` lists all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import RANK
from cannery.lint.case import Case
from cannery.lint.container import Remark
from cannery.lint.rules import engine, environment, image, mounts, nodes
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cannery.lint.case import Ground
    from cannery.lint.container import Container

RULES: tuple[Callable[[Case], Iterable[Remark]], ...] = (
    image.strange_image,
    image.behind,
    nodes.unknown_nodes,
    nodes.missing_managers,
    nodes.missing_cards,
    nodes.foreign_nodes,
    nodes.mounted_nodes,
    mounts.driver_mounts,
    mounts.smi_mount,
    environment.runtime_variable,
    environment.own_variable,
    engine.privileged,
    engine.mixed,
    engine.gpus,
    engine.platform,
    engine.shared_memory,
    mounts.empty_volumes,
    mounts.hidden,
    environment.lists,
    environment.preload,
    image.chip,
    image.standin,
    image.registry,
    engine.group,
    engine.caches,
)


def lint_container(container: Container, ground: Ground) -> tuple[Remark, ...]:
    """Return every remark about one container, each once, errors first, then in the order of the rules."""
    case = Case(container, ground)
    found = (*container.misread, *_not_read(container), *(one for rule in RULES for one in rule(case)))
    return tuple(sorted(dict.fromkeys(found), key=lambda one: RANK[one.severity]))


def _not_read(container: Container) -> Iterator[Remark]:
    """Note each word that only a shell can read, or another file."""
    at = f" in the command of line {container.line}" if container.line else ""
    for word in container.opaque:
        what = f"{word}{at} is not read: only a shell, or the file that is named, shows what it brings"
        fix = "write its options out to have them judged"
        yield Remark(Severity.NOTE, "text.unread", word, what, "it may bring any option", fix)
