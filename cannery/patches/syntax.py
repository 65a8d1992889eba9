"""What a change of a Python file does, by its syntax: the names that change.

Nothing of the file is run. Statements inside if, try, with, for, while and match belong to the scope around them, and
remember their branch. What is inside a function belongs to the function. Comments and layout do not count.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.errors import FindingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PYTHON_ENDS = (".py", ".pyi")


class Action(StrEnum):
    """What happened to a name, in the words of patch_summary.yaml. A class with changes inside is UPDATED."""

    ADDED = "added"
    REPLACED = "replaced"
    DELETED = "deleted"
    UPDATED = "updated"


class Kind(StrEnum):
    """What a name is bound to, in the words of patch_summary.yaml; a module attribute is an import."""

    METHOD = "method"
    ATTRIBUTE = "attribute"
    MODULE_ATTR = "module_attr"
    CLASS = "class"


@dataclass(frozen=True)
class Change:
    """One name of a file that changes; of a member of a class it is `Class.member`."""

    name: str
    kind: Kind
    action: Action


def changed_names(path: str, before: bytes | None, after: bytes | None) -> tuple[Change, ...]:
    """Return the names that change when the text `before` of a file becomes `after`; None: there is no file.

    They are in the order of the new text, a class before its members; those that are gone follow. A file that is not
    Python by its name has none. Raises `FindingsError` with file:line for what is not Python.
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
    """Return the names of a Python file as `_names`. Raises `FindingsError` with file:line; `state` names the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a plain text and the like: the file's own affair
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


def _bindings(body: Sequence[ast.stmt], under: str = "") -> Iterator[tuple[Kind, str, str, ast.stmt]]:
    """Give (kind, name, content, statement) of what each statement of a scope binds, in the order of the text.

    The content is without line numbers and comments. `under`, the branches around it that need not run, is a part.
    """
    for statement in body:
        for kind, name, content in _bound(statement):
            yield kind, name, f"{under}\n{content or ast.dump(statement)}", statement
        for text, block in _blocks(statement):
            yield from _bindings(block, "\n".join(filter(None, (under, text))))


def _blocks(statement: ast.stmt) -> list[tuple[str, list[ast.stmt]]]:
    """Return the blocks of a compound statement that is no scope, each with its condition; "" for one that runs."""
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            return [(f"if {ast.unparse(test)}", body), (f"else of {ast.unparse(test)}", orelse)]
        case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers):
            tried = "try" if handlers else ""
            caught = [(f"except {one.type and ast.unparse(one.type)}", one.body) for one in handlers]
            return [(tried, statement.body), *caught, (tried, statement.orelse), ("", statement.finalbody)]
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return [("", body)]
        case ast.For(orelse=orelse) | ast.AsyncFor(orelse=orelse) | ast.While(orelse=orelse):
            return [("loop", statement.body), ("", orelse)]
        case ast.Match(subject=subject, cases=cases):
            return [(f"match {ast.unparse(subject)} case {ast.unparse(one.pattern)}", one.body) for one in cases]
    return []


def _bound(statement: ast.stmt) -> Iterator[tuple[Kind, str, str]]:
    """Give (kind, name, content) of what a statement binds itself; the content "" is the statement."""
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
        case _:
            nodes = (node for target in _targets(statement) for node in ast.walk(target))
            for node in nodes:
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield Kind.ATTRIBUTE, node.id, ""


def _targets(statement: ast.stmt) -> list[ast.expr]:
    """Return what a statement assigns to."""
    match statement:
        case ast.Assign():
            return statement.targets
        case ast.AnnAssign() | ast.AugAssign() | ast.For() | ast.AsyncFor():
            return [statement.target]
        case ast.With() | ast.AsyncWith():
            return [item.optional_vars for item in statement.items if item.optional_vars is not None]
    return []
