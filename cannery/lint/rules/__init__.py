"""What is wrong with a container that somebody asks for: small pure functions, each of which yields remarks.

They know no host: what only a host shows is `doctor`'s. Each module holds the rules of one subject; `RULES` lists all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.compat.subject import RANK
from cannery.lint.container import Case, Remark
from cannery.lint.files import WHOLE
from cannery.lint.rules import engine, environment, mounts, nodes
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cannery.lint.container import Container, Ground

RULES: tuple[Callable[[Case], Iterable[Remark]], ...] = (
    engine.strange_image,
    engine.behind,
    nodes.unknown_nodes,
    nodes.missing_managers,
    nodes.missing_cards,
    nodes.foreign_nodes,
    nodes.mounted_nodes,
    mounts.driver_mounts,
    mounts.smi_mount,
    environment.runtime_variable,
    environment.own_variable,
    nodes.privileged,
    nodes.mixed,
    nodes.gpus,
    engine.platform,
    engine.shared_memory,
    mounts.hidden,
    environment.lists,
    engine.chip,
    engine.standin,
    engine.group,
)


def lint_container(container: Container, ground: Ground) -> tuple[Remark, ...]:
    """Return every remark about one container, each once, errors first, then in the order of the rules."""
    case = Case(container, ground)
    found = (*container.misread, *_not_read(container), *(one for rule in RULES for one in rule(case)))
    found = tuple(replace(one, fix=_for_a_pod(one.fix, case)) for one in found) if container.is_pod else found
    return tuple(sorted(dict.fromkeys(found), key=lambda one: RANK[one.severity]))


# Options of docker in a fix, and what a Pod has in their place.
_OF_A_POD = (
    (re.compile(r"-v \$\(command -v npu-smi\):(\S+?)(:ro)?(?=\s|$)"), r"a hostPath volume of npu-smi at \1"),
    (re.compile(r"-v (\S+?):(\S+?)(:ro)?(?=\s|$)"), r"a hostPath volume of \1 at \2"),
    (re.compile(r"--shm-size (\S+)"), r"an emptyDir of medium Memory and sizeLimit \1 at /dev/shm"),
    (re.compile(r"--group-add \S+(?: [^\s-]\S*)*"), "supplementalGroups with the group of the nodes"),
    (re.compile(r"-e (\S+?)=(\S+)"), r"env \1=\2"),
    (re.compile(r"--runtime (\S+)"), r"runtimeClassName \1"),
)
_NODES = re.compile(r"--device (?!for)\S+.*|--device for each.*")


def _for_a_pod(fix: str, case: Case) -> str:
    """Return a fix without docker's options, which no manifest takes."""
    resource = case.access.resource or "huawei.com/Ascend910"
    fix = _NODES.sub(f"ask for {resource} in resources.limits: the device plugin brings the nodes", fix)
    for option, words in _OF_A_POD:
        fix = option.sub(words, fix)
    return fix


def _not_read(container: Container) -> Iterator[Remark]:
    """Note each word that only a shell can read, or another file."""
    at = f" in the command of line {container.line}" if container.line else ""
    for word in container.opaque:
        what = f"{word}{at} is not read: only a shell, or the file that is named, shows what it brings"
        fix = WHOLE if container.where else "write its options out to have them judged"
        yield Remark(Severity.NOTE, "text.unread", word, what, "it may bring any option", fix)
