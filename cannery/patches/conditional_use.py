"""Names that a module binds under a condition only, and that a function now uses without it.

Told only of functions that did without the name before: those worked where the condition does not hold. A new function
may be meant for where it does.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from cannery.patches.functions import functions
from cannery.patches.py_scope import FunctionNode, bindings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.patches.py_scope import Bound


def conditional_uses(old: ast.Module | None, new: ast.Module, added: frozenset[int]) -> Iterator[tuple[int, str, str]]:
    """Give (line, name, condition in Python's words) of the uses on the lines `added`; nothing for a new file."""
    if old is None:
        return
    conditions = _conditions(new)
    before = dict(functions(old.body))
    for qualname, (bound, is_conditional) in functions(new.body):
        if is_conditional or qualname not in before or not isinstance(bound.node, FunctionNode):
            continue
        did_use = _names(before[qualname][0].node)
        local = _locals(bound.node)
        for node in _certain(bound.node.body):
            name = node.id
            if name in conditions and node.lineno in added and name not in did_use | local:
                yield node.lineno, name, conditions[name]


def _conditions(tree: ast.Module) -> dict[str, str]:
    """The names of a module of which every binding stands under one `if`, with its test."""
    found: dict[str, list[Bound]] = {}
    for bound in bindings(tree.body):
        found.setdefault(bound.word, []).append(bound)
    tests = {
        (node.lineno, node.col_offset): ast.unparse(node.test) for node in ast.walk(tree) if isinstance(node, ast.If)
    }
    conditions = {}
    for name, all_bound in found.items():
        owners = [{guard.owner for guard in bound.guards if guard.branch == "if"} for bound in all_bound]
        shared = set.intersection(*owners)
        if shared and not hasattr(builtins, name):
            conditions[name] = tests[min(shared)]
    return conditions


def _names(node: ast.stmt) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names that a function binds itself."""
    names = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(one.asname or one.name).partition(".")[0] for one in node.names}
    return names


def _certain(body: Sequence[ast.stmt]) -> Iterator[ast.Name]:
    """Give the names that run whenever the function does: nothing under a condition or behind a way out."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _loaded(statement.test)
            if any(isinstance(one, ast.Return | ast.Raise) for one in ast.walk(statement)):
                return  # it may have asked for the condition
        elif isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                yield from _loaded(item.context_expr)
            yield from _certain(statement.body)
        elif isinstance(statement, ast.Assert):
            return
        elif not isinstance(statement, ast.Try | ast.TryStar | ast.For | ast.AsyncFor | ast.While | ast.Match):
            yield from _loaded(statement)


def _loaded(node: ast.AST) -> Iterator[ast.Name]:
    """Give the names that are read in every run of a statement or expression."""
    match node:
        case ast.Name(ctx=ast.Load()):
            yield node
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
            return
        case ast.BoolOp(values=[first, *_]):
            yield from _loaded(first)
        case ast.IfExp(test=test):
            yield from _loaded(test)
        case ast.AnnAssign(value=value):
            if value is not None:
                yield from _loaded(value)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _loaded(child)
