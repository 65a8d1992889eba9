"""What a setup.py asks for, read from its syntax: nothing of the file is run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REQUIRES = "install_requires"
# A list of texts, a text, or None: only a run would give it.
Value = list[str] | str | None


def install_requires(text: str) -> tuple[list[str], str]:
    """Return the list `install_requires` of a setup.py, and a sentence on why it cannot be read, or "".

    It is an argument of setup() or, where that has none, a variable. A setup() that is called without it asks for
    nothing. Lists may be added, appended to, extended and named in between.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return [], f"it is no Python: {error}"
    names: dict[str, Value] = {}
    for statement, is_certain in _statements(tree.body):
        for target, value, is_added in _changes(statement):
            names[target] = _learned(names, target, value, is_added=is_added) if is_certain else None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "setup"]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == REQUIRES]
    if given or REQUIRES in names:
        found = _value(names, given[0]) if given else names[REQUIRES]
        if isinstance(found, list):
            return found, ""
        what = f"line {given[0].lineno}: " if given else ""
        return [], f"{what}{REQUIRES} cannot be read without running it; a file that it reads can be a place itself"
    if not calls:
        return [], f"it has neither a list {REQUIRES} nor a call of setup()"
    is_open = any(keyword.arg is None for call in calls for keyword in call.keywords)
    return [], f"setup() is called with **, which may hold {REQUIRES}" if is_open else ""


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _statements(body: list[ast.stmt], *, is_certain: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Statements of the module with those inside if, for, while, with and try; whether they surely run, once."""
    for statement in body:
        yield statement, is_certain
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for field_name in ("body", "orelse", "handlers", "finalbody"):
            for inner in getattr(statement, field_name, []):
                inside = [inner] if isinstance(inner, ast.stmt) else inner.body
                yield from _statements(inside, is_certain=is_certain and isinstance(statement, ast.With))


def _changes(statement: ast.stmt) -> Iterator[tuple[str, ast.expr, bool]]:
    """(name, value, whether it is added) of assignments and of .append() and .extend()."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            yield from ((target.id, value, False) for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value, False
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
            yield name, value, True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[value])
        ):
            yield name, value, True
        case _:
            return


def _learned(names: Mapping[str, Value], target: str, value: ast.expr, *, is_added: bool) -> Value:
    """Return what a name is after a change of it."""
    new, old = _value(names, value), names.get(target)
    if not is_added or new is None:
        return new
    return [*old, *([new] if isinstance(new, str) else new)] if isinstance(old, list) else None


def _value(names: Mapping[str, Value], node: ast.expr) -> Value:
    """Return the value of an expression of lists and texts."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            parts = [_part(names, element) for element in elements]
            return None if None in parts else [text for part in parts for text in part or ()]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            one, other = _value(names, left), _value(names, right)
            if isinstance(one, str) and isinstance(other, str):
                return one + other
            return one + other if isinstance(one, list) and isinstance(other, list) else None
        case ast.Name(id=name):
            return names.get(name)
        case _:
            return None


def _part(names: Mapping[str, Value], element: ast.expr) -> list[str] | None:
    """Return what an element brings into its list."""
    if isinstance(element, ast.Starred):
        found = _value(names, element.value)
        return found if isinstance(found, list) else None
    found = _value(names, element)
    return [found] if isinstance(found, str) else None
