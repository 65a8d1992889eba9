"""The functions and methods that a change brings into force, each with the hash of its source.

An image's verify finds the same hash from what runs, and so recognizes a patched function: see `in_force`.
"""

from __future__ import annotations

import ast
import hashlib
import io
import textwrap
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.patches.scope import Bound, FunctionNode, bindings, in_depth, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The functions of a property beside its getter, by the decorator that makes them.
ACCESSORS = {"setter": ".fset", "deleter": ".fdel"}


@dataclass(frozen=True)
class Function:
    """A function: its name inside the module, the sha256 (hex) of its source.

    `is_conditional`: it is under if, try or the like, so a process may not have it, or has one from elsewhere.
    """

    qualname: str
    sha256: str
    is_conditional: bool = False


def in_force(before: bytes | None, after: bytes, *, path: str = "the patched file") -> tuple[Function, ...]:
    """Return every function and method that a change of a Python file adds or replaces and that is then in use.

    `before` is None for a new file; `path` is how messages call it. Raises `FindingsError` with file:line for what is
    not Python. They are in the order of the text. Nested classes count, functions inside functions do not.

    The hash is of the lines from the first decorator to the last line of the body, dedented (`textwrap.dedent`), each
    without space at its end, joined with a line feed, in UTF-8. To find it from what runs: follow `qualname` with
    getattr from the module (a class: `inspect.getattr_static`, so that descriptors stay); of a property take `fget`,
    of a static or class method `__func__`, of a cached_property `func`; then `inspect.unwrap`. Its code's
    `co_firstlineno` is the line of the first decorator. A property's other functions are called `Class.name.fset` and
    `Class.name.fdel`, which getattr follows. Where no code object comes out, a decorator has put something else in the
    function's place: then the file's own hash has to do.

    Of several definitions of a name (overloads) the last counts. Left out, for which of them runs cannot be read from
    the text: names that two branches of one statement bind, that something else than a def binds last, and what only a
    type checker sees.
    """
    found = []
    with in_depth(path):
        old = {} if before is None else dict(functions(parse(path, before, state="before the patch").body))
        new = parse(path, after, state="with the patch")
        lines = _lines(after)  # its encoding is known to be right by now
        for qualname, (bound, is_conditional) in functions(new.body):
            if qualname not in old or old[qualname][0].whole != bound.whole:
                found.append((_start(bound.node), Function(qualname, _sha256(lines, bound.node), is_conditional)))
    return tuple(function for _line, function in sorted(found, key=lambda one: one[0]))


def functions(
    body: Sequence[ast.stmt], prefix: str = "", *, is_conditional: bool = False
) -> Iterator[tuple[str, tuple[Bound, bool]]]:
    """Give (qualified name, (definition, whether it is conditional)) of the functions of a scope and of its classes.

    Only those in use, see `in_force`.
    """
    names: dict[str, list[Bound]] = {}
    for bound in bindings(body):
        if not bound.is_for_types:
            names.setdefault(bound.word, []).append(bound)
    for name, found in names.items():
        last = found[-1]
        if any(last.excludes(other) for other in found[:-1]):
            continue
        may_lack = is_conditional or last.is_conditional
        if isinstance(last.node, ast.ClassDef):
            yield from functions(last.node.body, f"{prefix}{name}.", is_conditional=may_lack)
        elif isinstance(last.node, FunctionNode):
            for suffix, bound in _accessors(name, found).items():
                yield f"{prefix}{name}{suffix}", (bound, may_lack)


def _accessors(name: str, found: Sequence[Bound]) -> dict[str, Bound]:
    """The last definition of a function or, of a property, of each of its functions."""
    last: dict[str, Bound] = {}
    for bound in found:
        decorators = bound.node.decorator_list if isinstance(bound.node, FunctionNode) else []
        words = [one.attr for one in decorators if isinstance(one, ast.Attribute) and _names(one.value, name)]
        suffix = ACCESSORS.get(words[0], "") if words else ""
        if not words:
            last.clear()  # a new beginning: what was there before is out of use
        last[suffix] = bound
    return last


def _names(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _start(node: ast.stmt) -> int:
    """The line of the first decorator, or of the def."""
    decorators = node.decorator_list if isinstance(node, FunctionNode) else []
    return min([node.lineno, *(one.lineno for one in decorators)])


def _lines(data: bytes) -> list[str]:
    """The lines of a source as Python counts them, without their ends."""
    encoding, _lines_read = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.StringIO(data.decode(encoding), newline=None).read().split("\n")


def _sha256(lines: Sequence[str], node: ast.stmt) -> str:
    text = textwrap.dedent("\n".join(lines[_start(node) - 1 : node.end_lineno]))
    return hashlib.sha256("\n".join(line.rstrip() for line in text.split("\n")).encode()).hexdigest()
