"""What the statements of a module or a class body bind, read from the syntax: nothing of the file is run.

Statements inside if, try, with, for, while and match belong to the scope around them, and remember their branch. What
is inside a function belongs to the function.
"""

from __future__ import annotations

import ast
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.errors import FindingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
# Characters of a statement without a name that are printed: enough to find it.
LONGEST = 60


class Kind(StrEnum):
    """What a name is bound to. The first four are the words of patch_summary.yaml.

    A statement that binds no name (a call, a del, an assert) has its own text as its name.
    """

    METHOD = "method"
    ATTRIBUTE = "attribute"
    MODULE_ATTR = "module_attr"
    CLASS = "class"
    STATEMENT = "statement"


@dataclass(frozen=True)
class Guard:
    """A branch of a compound statement: where that one starts, the branch, and its text ("else of …").

    Of two branches that are both named only one runs, or the second runs where the first has failed. A branch
    without a name ("") runs whatever the others do.
    """

    owner: tuple[int, int]
    branch: str
    text: str


@dataclass(frozen=True)
class Bound:
    """One name that a statement binds: its content without line numbers and comments, and the branches around it."""

    kind: Kind
    name: str
    content: str
    node: ast.stmt
    guards: tuple[Guard, ...]

    @property
    def whole(self) -> str:
        """The content with the conditions under which it holds."""
        return "\n".join([*(guard.text for guard in self.guards), self.content])

    @property
    def is_conditional(self) -> bool:
        """Whether a process may not have it."""
        return any(guard.branch for guard in self.guards)

    @property
    def is_for_types(self) -> bool:
        """Whether only a type checker sees it."""
        return any(guard.branch == "if" and guard.text in TYPE_CHECKING_TESTS for guard in self.guards)

    @property
    def word(self) -> str:
        """The name that is bound in the scope: `a` for `import a.b`."""
        return self.name.partition(".")[0]

    def excludes(self, other: Bound) -> bool:
        """Whether the two are in branches of one statement that exclude each other."""
        mine = {guard.owner: guard.branch for guard in self.guards}
        return any(guard.branch and mine.get(guard.owner, "") not in {"", guard.branch} for guard in other.guards)


def parse(path: str, data: bytes, *, state: str = "") -> ast.Module:
    """Return the syntax of a Python file. Raises `FindingsError` with file:line; `state` names the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a plain text and the like: the file's own affair
            return ast.parse(data, filename=path)
    except SyntaxError as error:
        what, where = error.msg, f"{path}:{error.lineno or 1}"
    except (ValueError, RecursionError, MemoryError) as error:
        what, where = str(error) or "nested too deeply", f"{path}:1"
    text = f"{state}, the file is not Python" if state else "not Python"
    raise FindingsError(f"{text}: {what}", where=where, hint="correct the line in the patch that makes it")


@contextmanager
def in_depth(path: str) -> Iterator[None]:
    """Make a `FindingsError` of syntax that is nested deeper than it can be followed (a sum of a thousand terms)."""
    try:
        yield
    except RecursionError as error:
        raise FindingsError(
            "nested too deeply to be compared", where=path, hint="split the longest expression"
        ) from error


def bindings(body: Sequence[ast.stmt], guards: tuple[Guard, ...] = ()) -> Iterator[Bound]:
    """Give what each statement of a scope binds, in the order of the text."""
    for position, statement in enumerate(body):
        inside = _branches(statement)
        if not guards and position == 0 and _text_of(statement) is not None:
            yield Bound(Kind.ATTRIBUTE, "__doc__", ast.dump(statement), statement, guards)
            continue
        for kind, name, content in _bound(statement):
            yield Bound(kind, name, content, statement, guards)
        for guard, block in inside:
            yield from bindings(block, (*guards, guard))


def _text_of(statement: ast.stmt) -> str | None:
    """The text of a statement that is nothing but one, which a docstring is."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return None


def _branches(statement: ast.stmt) -> tuple[tuple[Guard, list[ast.stmt]], ...]:
    """Return the blocks of a compound statement that is no scope of its own."""

    def guard(branch: str, word: str, *nodes: ast.AST | None) -> Guard:
        text = " ".join([word, *(ast.dump(node) for node in nodes if node is not None)])
        return Guard((statement.lineno, statement.col_offset), branch, text)

    blocks: list[tuple[Guard, list[ast.stmt]]] = []
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            blocks = [(guard("if", "if", test), body), (guard("else", "else of", test), orelse)]
        case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers):
            tried = guard("try" if handlers else "", "try")
            caught = [(guard(f"except {at}", "except", one.type), one.body) for at, one in enumerate(handlers)]
            last = [(tried, statement.orelse), (guard("", "finally"), statement.finalbody)]
            blocks = [(tried, statement.body), *caught, *last]
        case ast.With() | ast.AsyncWith():
            blocks = [(guard("", "with", *statement.items), statement.body)]
        case ast.For() | ast.AsyncFor():
            head = guard("for", "for", statement.target, statement.iter)
            blocks = [(head, statement.body), (guard("", "else of for"), statement.orelse)]
        case ast.While(test=test, body=body, orelse=orelse):
            blocks = [(guard("while", "while", test), body), (guard("", "else of while", test), orelse)]
        case ast.Match(subject=subject, cases=cases):
            blocks = [
                (guard(f"case {at}", "case", subject, one.pattern, one.guard), one.body) for at, one in enumerate(cases)
            ]
    return tuple(blocks)


def _bound(statement: ast.stmt) -> Iterator[tuple[Kind, str, str]]:
    """Give (kind, name, content) of what a statement binds itself, apart from its branches."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield Kind.METHOD, name, ast.dump(statement)
        case ast.ClassDef(name=name):
            yield Kind.CLASS, name, _class_head(statement)
        case ast.Import(names=names):
            yield from ((Kind.MODULE_ATTR, one.asname or one.name, f"import {one.name}") for one in names)
        case ast.ImportFrom(names=names):
            module = "." * statement.level + (statement.module or "")
            for one in names:
                name = f"{module}.*" if one.name == "*" else one.asname or one.name
                yield Kind.MODULE_ATTR, name, f"from {module} import {one.name}"
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return
        case _:
            yield from _assigned(statement)


def _assigned(statement: ast.stmt) -> Iterator[tuple[Kind, str, str]]:
    """Give the names that a statement assigns, or the statement's own text where it assigns none."""
    match statement:
        case ast.Assign(targets=targets):
            content = ast.dump(statement)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            targets, content = [target], ast.dump(statement)
        case ast.For(target=target) | ast.AsyncFor(target=target):
            targets, content = [target], ast.dump(target)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            targets = [item.optional_vars for item in items if item.optional_vars is not None]
            content = " ".join(map(ast.dump, targets))
        case _:
            targets, content = [], ""
    names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name) and _is_set(one)]
    yield from ((Kind.ATTRIBUTE, name, content) for name in names)
    if not names and not _branches(statement):
        yield _nameless(statement)


def _is_set(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _nameless(statement: ast.stmt) -> tuple[Kind, str, str]:
    text = " ".join(ast.unparse(statement).split())
    return Kind.STATEMENT, text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…", ast.dump(statement)


def _class_head(node: ast.ClassDef) -> str:
    """What a class is without its body: bases, keywords, decorators."""
    parts = (node.bases, node.keywords, node.decorator_list)
    return " / ".join(" ".join(ast.dump(one) for one in part) for part in parts)


TYPE_CHECKING_TESTS = frozenset(
    f"if {ast.dump(ast.parse(test, mode='eval').body)}" for test in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
)
