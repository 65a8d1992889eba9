"""A list that a setup.py builds, read from its syntax: nothing of the file is run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SETUP, REQUIRES = "setup", "install_requires"


class _UnreadError(Exception):
    """An expression whose value only a run would give."""


# What names are at the end of the file: a list of texts, a text, or why that is not known.
_Names = dict[str, "list[str] | str | _UnreadError"]


def setup_list(text: str, name: str) -> tuple[list[str], str]:
    """Return the list `name` of a setup.py, and a sentence on why it cannot be read, or "".

    `name` is an argument of its call of setup() or, where that has none such, a variable. A setup() that is called
    without the argument gives an empty list. Lists may be added, appended to, extended and named in between.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return [], f"it is no Python: {error}"
    names: _Names = {}
    for statement, is_certain in _statements(tree.body):
        for target, value, is_added in _changes(statement):
            names[target] = _learned(names, target, value if is_certain else statement, is_added=is_added)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == SETUP]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == name]
    if not given and name not in names:
        return [], _absent(name, calls)
    try:
        return _list(names, given[0] if given else ast.Name(name)), ""
    except _UnreadError as error:
        return [], f"{name} is no list that can be read without running it: {error}"


def _absent(name: str, calls: list[ast.Call]) -> str:
    """Why there is no list `name` among the names and the arguments of setup(); "" where that means none is asked."""
    if name != REQUIRES:
        return f"it has no list {name}"
    if not calls:
        return f"it has neither a list {name} nor a call of setup()"
    is_open = any(keyword.arg is None for call in calls for keyword in call.keywords)
    return f"setup() is called with **, which may hold {name}" if is_open else ""


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


def _learned(names: _Names, target: str, value: ast.AST, *, is_added: bool) -> list[str] | str | _UnreadError:
    """Return what a name is after a change of it; `value` is a statement where that runs only under a condition."""
    try:
        new = _value(names, value)
        if not is_added:
            return new
        return [*_list(names, ast.Name(target)), *([new] if isinstance(new, str) else new)]
    except _UnreadError:
        return _UnreadError(_why(value))


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


def _list(names: _Names, node: ast.AST) -> list[str]:
    found = _value(names, node)
    if isinstance(found, str):
        raise _UnreadError(f"it is the text {found!r}")
    return found


def _value(names: _Names, node: ast.AST) -> list[str] | str:
    """Return the value of an expression of lists and texts."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [text for element in elements for text in _element(names, element)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            one, other = _value(names, left), _value(names, right)
            if isinstance(one, str) and isinstance(other, str):
                return one + other
            if isinstance(one, list) and isinstance(other, list):
                return one + other
        case ast.Name(id=name) if name in names:
            known = names[name]
            if not isinstance(known, _UnreadError):
                return known
            raise known
        case _:
            pass
    raise _UnreadError(_why(node))


def _element(names: _Names, node: ast.expr) -> list[str]:
    if isinstance(node, ast.Starred):
        return _list(names, node.value)
    found = _value(names, node)
    if isinstance(found, list):
        raise _UnreadError(_why(node))
    return [found]


def _why(node: ast.AST) -> str:
    """Return the line's text, and the file of requirements that it seems to read."""
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    files = [text for text in texts if text.endswith((".txt", ".in"))]
    hint = f"; it reads {files[0]}, which can be a place itself" if files else ""
    source = ast.unparse(node).splitlines()[0] if hasattr(node, "lineno") else "an unknown name"
    return f"line {getattr(node, 'lineno', 0)}: {source[:80]}{hint}"
