"""The changes of patches by class and function, and differences from a plugin's hand-written table.

Changes of a Python file are found in its syntax tree; no code is run. Statements inside if, try, with, for, while and
match belong to the scope around them, together with their branch. Statements in a function belong to the function.
Comments and layout are ignored.

The plugin's table is patch_summary.yaml in the form of verl_npu. It need not list imports and attributes.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import yaml

from cannery.errors import FindingsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PYTHON_ENDS = (".py", ".pyi")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)


class Action(StrEnum):
    """What happened to a name, in the terms of patch_summary.yaml. A class with changed members is UPDATED."""

    ADDED = "added"
    REPLACED = "replaced"
    DELETED = "deleted"
    UPDATED = "updated"


class Kind(StrEnum):
    """What a name is bound to, in the terms of patch_summary.yaml. A module attribute is an import."""

    METHOD = "method"
    ATTRIBUTE = "attribute"
    MODULE_ATTR = "module_attr"
    CLASS = "class"


@dataclass(frozen=True)
class Change:
    """One changed name in a file. A member of a class is `Class.member`."""

    name: str
    kind: Kind
    action: Action


def changed_names(path: str, before: bytes | None, after: bytes | None) -> tuple[Change, ...]:
    """Return the names that differ between the texts `before` and `after` of a file (None: no file).

    They are in the order of the new text, and deleted names come last. A file whose name does not end in .py or .pyi
    has none. Raises `FindingsError` with file:line if the text is not Python.
    """
    if before == after or not path.endswith(PYTHON_ENDS):
        return ()
    old, new = (
        {} if data is None else _names_of(path, data, state)
        for data, state in ((before, "before the patch"), (after, "with the patch"))
    )
    found = []
    for name in (*new, *(name for name in old if name not in new)):
        kind, _ = new.get(name) or old[name]
        if name not in old:
            found.append(Change(name, kind, Action.ADDED))
        elif name not in new:
            found.append(Change(name, kind, Action.DELETED))
        elif old[name] != new[name]:
            found.append(Change(name, kind, Action.UPDATED if kind is Kind.CLASS else Action.REPLACED))
    return tuple(found)


def _names_of(path: str, data: bytes, state: str) -> dict[str, tuple[Kind, str]]:
    """Return the names of a Python file like `_names`. Raises `FindingsError`; `state` describes the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as for "\d" in a plain string
            return _names(ast.parse(data, filename=path).body)
    except SyntaxError as error:
        what, where = error.msg, f"{path}:{error.lineno or 1}"
    except (ValueError, RecursionError, MemoryError) as error:
        what, where = str(error) or "nested too deeply", f"{path}:1"
    hint = "correct the line in the patch that makes it"
    raise FindingsError(f"{state}, the file is not Python: {what}", where=where, hint=hint)


def _names(body: Sequence[ast.stmt], prefix: str = "") -> dict[str, tuple[Kind, str]]:
    """Return {name: (kind, content)} of a scope and its classes; all definitions of one name count together."""
    found: dict[str, tuple[Kind, str]] = {}
    for kind, own_name, content, node in _bindings(body):
        name = f"{prefix}{own_name}"
        new = {name: (kind, content)}
        if isinstance(node, ast.ClassDef):
            new |= _names(node.body, f"{name}.")
        for key, (kind_of_key, text) in new.items():
            found[key] = (kind_of_key, f"{found[key][1]}\n{text}" if key in found else text)
    return found


def _bindings(body: Iterable[ast.stmt], under: str = "") -> Iterator[tuple[Kind, str, str, ast.stmt]]:
    """Yield (kind, name, content, statement) for each name that a scope binds, in the order of the text.

    The content has no line numbers and comments. It includes `under`, the statements around it.
    """
    for statement in body:
        for kind, name, content in _bound(statement):
            yield kind, name, f"{under}\n{content or ast.dump(statement)}", statement
        if not isinstance(statement, SCOPES):
            for header, inner in _statements(statement):
                yield from _bindings([inner], f"{under}\n{header}")


def _statements(node: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the statements in the blocks of a compound statement, each with the header of its block."""
    header = "".join(ast.dump(child) for child in ast.iter_child_nodes(node) if not isinstance(child, BLOCKS))
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else ():
            if isinstance(child, ast.stmt):
                yield f"{name} {header}", child
            elif isinstance(child, BLOCKS):
                yield from ((f"{header} {inner}", statement) for inner, statement in _statements(child))


def _bound(statement: ast.stmt) -> Iterator[tuple[Kind, str, str]]:
    """Yield (kind, name, content) for each name that a statement binds. The content "" means the whole statement."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield Kind.METHOD, name, ""
        case ast.ClassDef(name=name):
            yield Kind.CLASS, name, ""
        case ast.Import(names=names):
            for one in names:
                yield Kind.MODULE_ATTR, one.asname or one.name.partition(".")[0], f"import {one.name}"
        case ast.ImportFrom(names=names):
            for one in names:
                origin = f"from {'.' * statement.level}{statement.module} import {one.name}"
                yield Kind.MODULE_ATTR, one.asname or one.name, origin
        case ast.Assign(targets=targets):
            yield from _stored(targets)
        case ast.AnnAssign() | ast.AugAssign() | ast.For() | ast.AsyncFor():
            yield from _stored([statement.target])
        case ast.With() | ast.AsyncWith():
            yield from _stored([item.optional_vars for item in statement.items if item.optional_vars is not None])


def _stored(targets: Iterable[ast.expr]) -> Iterator[tuple[Kind, str, str]]:
    for node in (node for target in targets for node in ast.walk(target)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield Kind.ATTRIBUTE, node.id, ""


WORTH_LISTING = frozenset({Kind.CLASS, Kind.METHOD})
WHOLE = frozenset({Action.ADDED, Action.DELETED})


@dataclass(frozen=True)
class FileChanges:
    """A file that a patch changes. `names` is empty for a file that is not Python."""

    path: str
    action: Action
    names: tuple[Change, ...]


@dataclass(frozen=True)
class PatchChanges:
    """The changes of one patch: repo, revision and keeper of its set, and its name without `.patch`."""

    repo: str
    rev: str
    keeper: str
    name: str
    files: tuple[FileChanges, ...]


@dataclass(frozen=True)
class Listed:
    """The entries of a plugin's table for one commit of a repo: {patch: names}. Class members are `Class.member`."""

    repo: str
    rev: str
    folder: str
    names: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Difference:
    """A difference between what the table lists and what the patch does. `file` is the name of the patch."""

    repo: str
    file: str
    listed: str
    actual: str

    def __str__(self) -> str:
        return f"{self.repo}/{self.file}: the summary lists {self.listed}; {self.actual}"


def summary_lines(patches: Iterable[PatchChanges]) -> Iterator[str]:
    """Yield the lines of the summary: one for each set, file and changed name."""
    title = ""
    for patch in patches:
        if title != (title := f"{patch.repo} {patch.rev} ({patch.keeper})"):
            yield title
        for file in patch.files:
            yield f"  {patch.name}: {file.path} ({file.action})"
            for one in outermost(file.names):
                yield f"    {one.action:<8} {'class ' if one.kind is Kind.CLASS else ''}{one.name}"


def outermost(names: Sequence[Change]) -> tuple[Change, ...]:
    """Return changes without the members of classes that are added or deleted."""
    whole = {one.name for one in names if one.kind is Kind.CLASS and one.action in WHOLE}
    return tuple(one for one in names if one.name.rpartition(".")[0] not in whole)


def read_table(text: str, where: str) -> tuple[Listed, ...]:
    """Read a patch_summary.yaml, with all scalars as texts; `where` is the name of the file in messages.

    Keys that the plugin does not print are ignored. Raises `UsageError` for any other file.
    """
    try:
        value = yaml.BaseLoader(text).get_single_data()
        return tuple(
            Listed(entry["repo"], version["rev"], version["dir"], dict(map(_listed, version["files"] or ())))
            for entry in value["patches"] or ()
            for version in entry["versions"] or ()
        )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        hint = "see the fields of patch_summary.yaml in the plugin's quick_start"
        raise UsageError(f"does not have verl_npu's form: {error}", where=where, hint=hint) from error


def _listed(value: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """Return the name of a patch and its listed names."""
    classes, members = (value["diff"].get(key) or () for key in ("class_changes", "module_changes"))
    inside = [f"{one['name']}.{part['name']}" for one in classes for part in one.get("changes") or ()]
    return value["name"], frozenset([*(one["name"] for one in (*classes, *members)), *inside])


def differences(patches: Iterable[PatchChanges], table: Sequence[Listed]) -> Iterator[Difference]:
    """Yield the differences between the table and the patches. Patches that are only in the table are ignored."""
    for patch in patches:
        found = [
            one.names[patch.name]
            for one in table
            if one.repo == patch.repo
            and (one.folder == patch.rev or one.rev.startswith(patch.rev))
            and patch.name in one.names
        ]
        if not found:
            yield Difference(patch.repo, patch.name, f"nothing of this patch for {patch.rev}", "it is in the set")
            continue
        listed = frozenset[str]().union(*found)
        changes = [one for file in patch.files for one in file.names]
        for name in sorted(listed - {one.name for one in changes}):
            yield Difference(patch.repo, patch.name, name, "the patch does not change it")
        for one in outermost(changes):
            if one.kind in WORTH_LISTING and one.name not in listed:
                yield Difference(patch.repo, patch.name, f"no {one.name}", f"it is {one.action}")
