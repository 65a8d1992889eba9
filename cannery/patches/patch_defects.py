"""Defects that can be read from what a patch adds to a Python file: it is sure, or nearly, to fail when it runs.

Three kinds: what pyflakes knows to fail (undefined names and the like; style and unused names are no defects here), a
misspelt attribute, and a name that is bound under a condition only and used without it.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.patches.conditional_use import conditional_uses
from cannery.patches.py_scope import in_depth, parse
from cannery.patches.py_walk import evaluated, places
from cannery.patches.spelling import misspelt, own_names

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from pyflakes.messages import Message

    from cannery.patches.py_walk import Places

__all__ = ["Defect", "attribute_names", "defects", "defined_names"]

SYNTAX = "SyntaxError when the module is imported"
# Messages of pyflakes (its pyflakes/messages.py) of what fails, with how. All others are matters of taste.
FAILS: dict[str, str] = {
    "UndefinedName": "NameError when it runs",
    "UndefinedLocal": "UnboundLocalError when it runs",
    "UndefinedExport": "AttributeError in `from … import *`",
    "DuplicateArgument": SYNTAX,
    "ReturnOutsideFunction": SYNTAX,
    "YieldOutsideFunction": SYNTAX,
    "ContinueOutsideLoop": SYNTAX,
    "BreakOutsideLoop": SYNTAX,
    "DefaultExceptNotLast": SYNTAX,
    "TwoStarredExpressions": SYNTAX,
    "TooManyExpressionsInStarredAssignment": SYNTAX,
    "LateFutureImport": SYNTAX,
    "FutureFeatureNotDefined": SYNTAX,
    "ImportStarNotPermitted": SYNTAX,
    "InvalidPrintSyntax": "TypeError when it runs",
    "RaiseNotImplemented": "TypeError when it runs",
    "StringDotFormatInvalidFormat": "ValueError when it runs",
    "StringDotFormatMissingArgument": "IndexError or KeyError when it runs",
    "StringDotFormatMixingAutomatic": "ValueError when it runs",
    "PercentFormatInvalidFormat": "ValueError when it runs",
    "PercentFormatUnsupportedFormatCharacter": "ValueError when it runs",
    "PercentFormatMissingArgument": "KeyError when it runs",
    "PercentFormatPositionalCountMismatch": "TypeError when it runs",
    "PercentFormatExpectedMapping": "TypeError when it runs",
    "PercentFormatExpectedSequence": "TypeError when it runs",
    "PercentFormatMixedPositionalAndNamed": "TypeError or ValueError when it runs",
    "PercentFormatStarRequiresSequence": "TypeError when it runs",
}
# What looks like `.name`, `def name`, `class name`, or a name that is given a type or value: the names a tree knows.
# Read without a parser, since a tree may have thousands of files; what stands in comments counts too.
KNOWN = re.compile(rb"(?:\.\s*|\bdef\s+|\bclass\s+|^[ \t]*(?=[A-Za-z_]\w*\s*[:=]))([A-Za-z_]\w*)", re.MULTILINE)


@dataclass(frozen=True)
class Defect:
    """One defect: file, 1-based line in the patched file, what is wrong there, and why it matters."""

    path: str
    line: int
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} ({self.why})"


def attribute_names(data: bytes) -> frozenset[str]:
    """Return the names of attributes, functions, classes and fields that the source of a Python file has."""
    return frozenset(found.decode("ascii") for found in KNOWN.findall(data))


def defined_names(path: str, data: bytes) -> frozenset[str]:
    """Return the names that a Python file defines itself; raise `FindingsError` with file:line for what is none."""
    return own_names(parse(path, data))


def defects(path: str, before: bytes | None, after: bytes, known_names: frozenset[str]) -> tuple[Defect, ...]:
    """Return the defects that come with the change of one Python file, by line.

    `before` is None for a new file. `known_names` is what `attribute_names` finds in all files of the tree as it is
    without the patches, with the `defined_names` of the patched files: an attribute that is none of them and nearly one
    of them is taken for misspelt. Each defect is told once a function. Raises `FindingsError` with file:line for what
    is no Python.
    """
    with in_depth(path):
        old = None if before is None else parse(path, before, state="before the patch")
        new = parse(path, after, state="with the patch")
        added = added_lines(before, after)
        found = [
            *_failing(path, old, new, added),
            *_misspelt(new, added, known_names | attribute_names(before or b"")),
            *_conditional(old, new, added),
        ]
        where = places(new)
    told: dict[tuple[str, str], Defect] = {}
    for line, what, why in sorted(found):
        told.setdefault((what, where.name(line)), Defect(path, line, what, _in_place(why, where, line)))
    return tuple(told.values())


def _in_place(why: str, where: Places, line: int) -> str:
    name = where.name(line)
    return why.replace(" when it runs", f" when {name} runs" if name else " when the module is imported")


def added_lines(before: bytes | None, after: bytes) -> frozenset[int]:
    """Return the 1-based numbers of the lines of `after` that a line diff calls new."""
    old, new = (before or b"").splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return frozenset(
        line + 1
        for tag, _i1, _i2, start, end in matcher.get_opcodes()
        if tag in {"insert", "replace"}
        for line in range(start, end)
    )


def _failing(
    path: str, old: ast.Module | None, new: ast.Module, added: frozenset[int]
) -> Iterator[tuple[int, str, str]]:
    """(line, what, why) of pyflakes' new messages on added lines; on others of names that were all right before.

    The latter is what a patch does that takes away an import which is still used.
    """
    before = Counter(map(_key, _messages(path, old))) if old is not None else Counter[tuple[str, str]]()
    after = sorted(_messages(path, new), key=lambda one: (one.lineno not in added, one.lineno))
    fresh = Counter(map(_key, after)) - before
    for message in after:
        key = _key(message)
        if fresh[key] > 0 and (message.lineno in added or key not in before):
            fresh[key] -= 1
            yield message.lineno, key[1], FAILS[key[0]]


def _messages(path: str, tree: ast.Module) -> list[Message]:
    from pyflakes.checker import Checker  # noqa: PLC0415 - only who checks patches needs it

    known = [one for one in Checker(tree, filename=path).messages if type(one).__name__ in FAILS]
    looked_up = evaluated(tree)
    return [
        one for one in known if type(one).__name__ != "UndefinedName" or (one.lineno, one.message_args[0]) in looked_up
    ]


def _key(message: Message) -> tuple[str, str]:
    return type(message).__name__, str(message.message % message.message_args)


def _misspelt(new: ast.Module, added: frozenset[int], known: frozenset[str]) -> Iterator[tuple[int, str, str]]:
    for line, name, near in misspelt(new, added, known):
        what = f"attribute `{name}` is known nowhere in the tree; `{near}` is"
        yield line, what, "misspelt, it seems: AttributeError when it runs"


def _conditional(old: ast.Module | None, new: ast.Module, added: frozenset[int]) -> Iterator[tuple[int, str, str]]:
    for line, name, condition in conditional_uses(old, new, added):
        what = f"`{name}` is used whether or not {condition}, which alone binds it"
        yield line, what, "NameError where that does not hold, when it runs"
