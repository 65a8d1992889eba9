"""Which function a line of a Python file is in, and which names of it are looked up when it runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Places:
    """The functions and methods of a file: (first line, last line, name), outer ones first."""

    spans: tuple[tuple[int, int, str], ...]

    def name(self, line: int) -> str:
        """Return the name of the innermost function that `line` (1-based) is in, "" outside of all."""
        return next((name for first, last, name in reversed(self.spans) if first <= line <= last), "")


def places(tree: ast.Module) -> Places:
    """Return where the functions of a file are."""
    return Places(tuple(sorted(_spans(tree, ""), key=lambda one: (one[0], -one[1]))))


def _spans(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not isinstance(child, ast.ClassDef):
                yield child.lineno, child.end_lineno or child.lineno, f"{prefix}{child.name}"
            inner = f"{prefix}{child.name}."
        yield from _spans(child, inner)


def evaluated(tree: ast.Module) -> frozenset[tuple[int, str]]:
    """Return (line, name) of the names that are looked up when the file runs.

    Those in texts are not, nor are annotations of a function's variables, nor any after `from __future__ import
    annotations`.
    """
    is_lazy = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(one.name == "annotations" for one in node.names)
        for node in tree.body
    )
    return frozenset(_evaluated(tree, is_lazy=is_lazy, is_local=False))


def _evaluated(node: ast.AST, *, is_lazy: bool, is_local: bool) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Name):
        yield node.lineno, node.id
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        is_local = not isinstance(node, ast.ClassDef)
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns"} and (is_lazy or (is_local and isinstance(node, ast.AnnAssign))):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _evaluated(child, is_lazy=is_lazy, is_local=is_local)
