"""What a change of one Python file is: classes, methods, functions, variables and imports, compared by their syntax.

Line numbers, comments and layout do not count. Docstrings do: a changed one of a function replaces the function, one of
a class or a module is its attribute `__doc__` (which is not listed of a class or file that is new or gone). A statement
under a condition is compared together with the condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from cannery.patches.scope import Bound, Kind, bindings, in_depth, parse

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PYTHON_ENDS = (".py", ".pyi")
K = TypeVar("K")


class Action(StrEnum):
    """What happened, in the words of patch_summary.yaml."""

    ADDED = "added"
    REPLACED = "replaced"
    DELETED = "deleted"
    UPDATED = "updated"


@dataclass(frozen=True)
class Member:
    """One changed name of a module or a class.

    An import has the name that it binds (`c` for `import a.b as c`); a plain `import a.b` is called `a.b`, so that it
    differs from `import a`.
    """

    action: Action
    kind: Kind
    name: str


@dataclass(frozen=True)
class ClassChange:
    """A changed class: UPDATED when only members changed, REPLACED when bases, keywords, decorators or condition did.

    A nested class is called `Outer.Inner` and is listed by itself: it is no member of `Outer`.
    """

    action: Action
    name: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class FileChanges:
    """The changes of one file. Only `action` is known of a file that is not Python.

    `is_same_text`: its bytes are what they were, so that only its mode can change.
    """

    path: str
    module_members: tuple[Member, ...]
    classes: tuple[ClassChange, ...]
    action: Action = Action.UPDATED
    is_python: bool = True
    is_same_text: bool = False


@dataclass(frozen=True)
class PatchChanges:
    """The changes of one patch file: `name` is its stem, as patch_summary.yaml calls it."""

    name: str
    files: tuple[FileChanges, ...]


@dataclass(frozen=True)
class RepoChanges:
    """The changes of one patch set: `rev` is its folder's name, a full or short commit; `keeper` keeps it."""

    repo: str
    rev: str
    patches: tuple[PatchChanges, ...]
    keeper: str = ""


# By kind and name; a name may be bound several times (overloads, a property's functions, branches).
_Members = dict[tuple[Kind, str], list[str]]
_Classes = dict[str, list[Bound]]


def is_python(path: str) -> bool:
    """Whether a file is Python by its name."""
    return path.endswith(PYTHON_ENDS)


def python_changes(path: str, before: bytes | None, after: bytes | None) -> FileChanges:
    """Return what changes when the text `before` of a file becomes `after`; None: there is no file.

    Raises `FindingsError` with file:line where one of them is not Python. Names are in the order of the new text; those
    that are gone follow, in the order of the old text.
    """
    action = Action.ADDED if before is None else Action.DELETED if after is None else Action.UPDATED
    if before == after:
        return FileChanges(path, (), (), action, is_python(path), is_same_text=True)
    if not is_python(path):
        return FileChanges(path, (), (), action, is_python=False)
    with in_depth(path):
        old_members, old_classes = _scope([_body(path, before, "before the patch")])
        new_members, new_classes = _scope([_body(path, after, "with the patch")])
        members = _members(old_members, new_members, is_whole=action is not Action.UPDATED)
        return FileChanges(path, members, tuple(_classes(old_classes, new_classes)), action)


def _body(path: str, data: bytes | None, state: str) -> Sequence[ast.stmt]:
    return () if data is None else parse(path, data, state=state).body


def _scope(bodies: Iterable[Sequence[ast.stmt]]) -> tuple[_Members, _Classes]:
    """What the bodies of a module, or of all classes of one name, bind."""
    members: _Members = {}
    classes: _Classes = {}
    for bound in (bound for body in bodies for bound in bindings(body)):
        if bound.kind is Kind.CLASS:
            classes.setdefault(bound.name, []).append(bound)
        else:
            members.setdefault((bound.kind, bound.name), []).append(bound.whole)
    return members, classes


def _members(before: _Members, after: _Members, *, is_whole: bool) -> tuple[Member, ...]:
    """Return the changed members; `is_whole`: all of them came or went together, so a docstring is not listed."""
    found = []
    for kind, name in _order(before, after):
        action = _action(before.get((kind, name)), after.get((kind, name)))
        if action is not None and not (is_whole and name == "__doc__"):
            found.append(Member(action, kind, name))
    return tuple(found)


def _action(before: list[str] | None, after: list[str] | None) -> Action | None:
    if before is None:
        return Action.ADDED
    if after is None:
        return Action.DELETED
    return None if before == after else Action.REPLACED


def _order(before: Mapping[K, object], after: Mapping[K, object]) -> list[K]:
    return [*after, *(key for key in before if key not in after)]


def _classes(before: _Classes, after: _Classes, prefix: str = "") -> Iterator[ClassChange]:
    """Give the changed classes of a scope, each followed by its own nested ones."""
    for name in _order(before, after):
        old, new = before.get(name, []), after.get(name, [])
        action = _action([one.whole for one in old] or None, [one.whole for one in new] or None)
        old_members, old_classes = _scope(_bodies(old))
        new_members, new_classes = _scope(_bodies(new))
        members = _members(old_members, new_members, is_whole=action in {Action.ADDED, Action.DELETED})
        if action is not None or members:
            yield ClassChange(action or Action.UPDATED, f"{prefix}{name}", members)
        yield from _classes(old_classes, new_classes, f"{prefix}{name}.")


def _bodies(bound: Iterable[Bound]) -> Iterator[Sequence[ast.stmt]]:
    return (getattr(one.node, "body", ()) for one in bound)
