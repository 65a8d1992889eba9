"""What a change of a Python file does, by its syntax: the names that change, and the functions that come into force.

Nothing of the file is run. Statements inside if, try, with, for, while and match belong to the scope around them, and
remember their branch. What is inside a function belongs to the function. Comments and layout do not count.
"""

from __future__ import annotations

import ast
import hashlib
import io
import textwrap
import tokenize
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.errors import FindingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PYTHON_ENDS = (".py", ".pyi")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
# The functions of a property beside its getter, by the decorator that makes them.
ACCESSORS = {"setter": ".fset", "deleter": ".fdel"}
FOR_TYPES = frozenset({"if TYPE_CHECKING", "if typing.TYPE_CHECKING"})


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


@dataclass(frozen=True)
class Function:
    """A function: its name inside the module, the sha256 (hex) of its source."""

    qualname: str
    sha256: str


@dataclass(frozen=True)
class _Bound:
    """One name that a statement binds: its content without line numbers and comments, and the branches around it.

    `under` is the text of those branches that need not run, "" for none. `kind` is None where a statement (a call, a
    del) binds nothing and only begins with the name.
    """

    kind: Kind | None
    name: str
    content: str
    node: ast.stmt
    under: str

    @property
    def whole(self) -> str:
        """The content with the conditions under which it holds."""
        return f"{self.under}\n{self.content}"


def changed_names(path: str, before: bytes | None, after: bytes | None) -> tuple[Change, ...]:
    """Return the names that change when the text `before` of a file becomes `after`; None: there is no file.

    They are in the order of the new text, a class before its members; those that are gone follow. A file that is not
    Python by its name has none. Raises `FindingsError` with file:line for what is not Python.
    """
    if before == after or not path.endswith(PYTHON_ENDS):
        return ()
    with _in_depth(path):
        old, new = (
            {} if data is None else _names(_parse(path, data, state).body)
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
    the text: names that are bound in more than one branch, that something else than a def binds last, and what only a
    type checker sees.
    """
    found = []
    with _in_depth(path):
        old = {} if before is None else dict(_functions(_parse(path, before, "before the patch").body))
        new = _parse(path, after, "with the patch")
        lines = _lines(after)  # its encoding is known to be right by now
        for qualname, bound in _functions(new.body):
            if qualname not in old or old[qualname].whole != bound.whole:
                found.append((_start(bound.node), Function(qualname, _sha256(lines, bound.node))))
    return tuple(function for _line, function in sorted(found, key=lambda one: one[0]))


def _parse(path: str, data: bytes, state: str) -> ast.Module:
    """Return the syntax of a Python file. Raises `FindingsError` with file:line; `state` names the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a plain text and the like: the file's own affair
            return ast.parse(data, filename=path)
    except SyntaxError as error:
        what, where = error.msg, f"{path}:{error.lineno or 1}"
    except (ValueError, RecursionError, MemoryError) as error:
        what, where = str(error) or "nested too deeply", f"{path}:1"
    hint = "correct the line in the patch that makes it"
    raise FindingsError(f"{state}, the file is not Python: {what}", where=where, hint=hint)


@contextmanager
def _in_depth(path: str) -> Iterator[None]:
    """Make a `FindingsError` of syntax that is nested deeper than it can be followed (a sum of a thousand terms)."""
    try:
        yield
    except RecursionError as error:
        raise FindingsError(
            "nested too deeply to be compared", where=path, hint="split the longest expression"
        ) from error


def _names(body: Sequence[ast.stmt], prefix: str = "") -> dict[str, tuple[Kind, str]]:
    """Return {name: (kind, content)} of a scope and its classes; all definitions of one name count together."""
    found: dict[str, tuple[Kind, str]] = {}
    for bound in _bindings(body):
        if bound.kind is None:
            continue
        name = f"{prefix}{bound.name}"
        new = {name: (bound.kind, bound.whole)}
        if isinstance(bound.node, ast.ClassDef):
            new |= _names(bound.node.body, f"{name}.")
        for key, (kind, content) in new.items():
            found[key] = (kind, f"{found[key][1]}\n{content}" if key in found else content)
    return found


def _functions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, _Bound]]:
    """Give (qualified name, definition) of the functions in use of a scope and of its classes, see `in_force`."""
    names: dict[str, list[_Bound]] = {}
    for bound in _bindings(body):
        if bound.under not in FOR_TYPES:
            names.setdefault(bound.name, []).append(bound)
    for name, found in names.items():
        last = found[-1]
        if sum(bool(one.under) for one in found) > 1:
            continue
        if isinstance(last.node, ast.ClassDef):
            yield from _functions(last.node.body, f"{prefix}{name}.")
        elif isinstance(last.node, FunctionNode):
            for suffix, bound in _accessors(name, found).items():
                yield f"{prefix}{name}{suffix}", bound


def _accessors(name: str, found: Sequence[_Bound]) -> dict[str, _Bound]:
    """The last definition of a function or, of a property, of each of its functions."""
    last: dict[str, _Bound] = {}
    for bound in found:
        decorators = bound.node.decorator_list if isinstance(bound.node, FunctionNode) else []
        words = [
            one.attr
            for one in decorators
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == name
        ]
        if not words:
            last.clear()  # a new beginning: what was there before is out of use
        last[ACCESSORS.get(words[0], "") if words else ""] = bound
    return last


def _bindings(body: Sequence[ast.stmt], under: str = "") -> Iterator[_Bound]:
    """Give what each statement of a scope binds, in the order of the text."""
    for statement in body:
        blocks = _blocks(statement)
        bound = list(_bound(statement))
        if not bound and not blocks and not isinstance(statement, ast.Pass) and not _is_text(statement):
            # What is set on a name, or called of it, counts for the name: `Engine.start = other`.
            bound = [(None, ast.unparse(statement).partition(".")[0], "")]
        for kind, name, content in bound:
            yield _Bound(kind, name, content or ast.dump(statement), statement, under)
        for text, block in blocks:
            yield from _bindings(block, "\n".join(filter(None, (under, text))))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


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


def _bound(statement: ast.stmt) -> Iterator[tuple[Kind | None, str, str]]:
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
