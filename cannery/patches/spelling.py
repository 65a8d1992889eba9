"""Attributes of a Python file that look misspelt: no name of the tree, and nearly one of them."""

from __future__ import annotations

import ast
import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# As alike as difflib's ratio has to be, and as few letters as may be wrong; shorter names are alike by chance.
ALIKE = 0.8
MOST_WRONG = 2
SHORTEST = 5


def misspelt(tree: ast.Module, added: frozenset[int], known: frozenset[str]) -> Iterator[tuple[int, str, str]]:
    """Give (line, name, the known name that is nearest) of the attributes on the lines `added` that look misspelt.

    Both begin and end alike: `enabled` beside `enable`, `sizes` beside `size` are other words, not slips. A name that
    the file itself defines, or has as a text, is meant as it is written; so is one that differs from a known one in
    digits and underscores alone.
    """
    own = own_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        line, name = node.end_lineno or node.lineno, node.attr
        if line in added and len(name) >= SHORTEST and name not in known and name not in own:
            near = _nearest(name, known)
            if near:
                yield line, name, near


def own_names(tree: ast.Module) -> frozenset[str]:
    """Return what a file defines, or names in a text (getattr, keys of a configuration)."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Constant(value=str(name)) if name.isidentifier():
                names.add(name)
            case _:
                pass
    return frozenset(names)


def _nearest(name: str, known: frozenset[str]) -> str:
    """Return the known name that is most like `name`, "" where none is alike enough or one is meant to differ."""
    matcher = difflib.SequenceMatcher(None, "", name, autojunk=False)
    found: list[tuple[float, str]] = []
    for one in known:
        if one[0] != name[0] or one[-1] != name[-1] or abs(len(one) - len(name)) > MOST_WRONG:
            continue
        matcher.set_seq1(one)
        if matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE and _wrong(matcher) <= MOST_WRONG:
            found.append((-matcher.ratio(), one))
    if any(_bare(one) == _bare(name) for _ratio, one in found):
        return ""
    return min(found)[1] if found else ""


def _wrong(matcher: difflib.SequenceMatcher[str]) -> int:
    """How many letters differ; two that changed places count as two."""
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def _bare(name: str) -> str:
    return "".join(letter for letter in name if letter.isalpha())
