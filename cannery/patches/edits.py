"""Edits that a plugin's setup.py would make to other trees, made here by the file's syntax (AST), each only once.

A PEP 660 install never runs them (pip from 25.3 on, uv), and `python setup.py develop` edits whatever it finds.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from cannery.errors import BuildFailedError

if TYPE_CHECKING:
    from cannery.catalog.component import Edit

# Our module beside an edited file, with the functions that it takes over (templates/tools/plugin).
TAKING_OVER = "cannery_patches"
CONSTRUCTS = (ast.FunctionDef, ast.AsyncFunctionDef)


def edited(edit: Edit, before: bytes) -> bytes:
    """Return the file after `edit`; the same bytes when all of it is in there already.

    Raises `BuildFailedError` for a file that is not Python, or does not have the place that the edit changes.
    """
    try:
        tree = ast.parse(before)
    except (SyntaxError, ValueError) as error:
        raise _failed(edit, f"is not Python: {error}") from error
    if edit.imports is not None:
        return _import(edit, before, tree)
    return _comment_out(edit, before, tree) if edit.comments_out is not None else _take_over(edit, before, tree)


def _failed(edit: Edit, what: str) -> BuildFailedError:
    hint = f"the edit is in images/components, `edits`, {edit.name}; it is for another commit of {edit.component}"
    return BuildFailedError(f"edit {edit.name}: {edit.file} {what}", where=edit.component, hint=hint)


def _import(edit: Edit, before: bytes, tree: ast.Module) -> bytes:
    """Import a module at the end of the file, where the name `when` is true; an import of it anywhere is enough."""
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    if edit.imports in imported:
        return before
    if not re.search(rf"\b{edit.when}\b".encode(), before):
        raise _failed(edit, f"has no {edit.when} to ask")
    text = f"\n# Cannery: {' '.join(edit.reason.split())}\nif {edit.when}:\n    import {edit.imports}\n"
    return before + b"\n" * (not before.endswith(b"\n")) + text.encode()


def _comment_out(edit: Edit, before: bytes, tree: ast.Module) -> bytes:
    """Comment out a statement of the module, wherever it is at the module's own level."""
    wanted = ast.dump(ast.parse(edit.comments_out or "").body[0])
    lines = before.splitlines(keepends=True)
    found = [node for node in tree.body if ast.dump(node) == wanted]
    for node in found:
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = b"# " + lines[number]
    commented = f"# {edit.comments_out}".encode()
    if not found and not any(line.strip() == commented for line in lines):
        raise _failed(edit, f"has no line `{edit.comments_out}`")
    return b"".join(lines)


def _take_over(edit: Edit, before: bytes, tree: ast.Module) -> bytes:
    """Put an import from our own module into the place of each function that is named; its text is not read."""
    lines = before.splitlines(keepends=True)
    functions = {node.name: node for node in tree.body if isinstance(node, CONSTRUCTS)}
    missing = [name for name in edit.takes_over if name not in functions]
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == TAKING_OVER)
    if not {*missing} <= {alias.name for node in imports for alias in node.names}:
        raise _failed(edit, f"has no function {' and no '.join(missing)}")
    for name in sorted(set(functions) & set(edit.takes_over), key=lambda name: functions[name].lineno, reverse=True):
        node = functions[name]
        first = min(part.lineno for part in (node, *node.decorator_list)) - 1
        text = f"from .{TAKING_OVER} import {name}  # Cannery: {' '.join(edit.reason.split())}\n"
        lines[first : node.end_lineno] = [text.encode()]
    return b"".join(lines)
