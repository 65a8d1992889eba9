"""Which function a line of a Python file is in."""

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
