"""What a source's own files ask for, compared with what its component has for that revision. Nothing of it is run.

A *place* is a file of the tree: one of requirements (with those that it includes by -r), a pyproject.toml, whose
dependencies setuptools may read from files too, or a setup.py; `pyproject.toml:build-system` is what a build asks for.
"""

from __future__ import annotations

import ast
import posixpath
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

NOTHING, BUILD = "nothing", "build-system"
# A comment begins a line or follows a space: `name @ https://host/file#sha256=…` has none.
COMMENT = re.compile(r"(?:^|\s)#.*$")
# What may follow a requirement: --hash=…, --config-settings …
OPTIONS = re.compile(r"\s+--?[A-Za-z].*$")
INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S.*)")
REQUIREMENT_FILE = re.compile(
    r"(?:.*/)?(?:[^/]*requirements[^/]*\.(?:txt|in)|requirements/.*|pyproject[^/]*\.toml|setup\.py)"
)


@dataclass(frozen=True)
class Difference:
    """A distribution that a component and its tree ask for otherwise; each side as it is written, or "nothing"."""

    name: str
    known: str
    tree: str

    def __str__(self) -> str:
        return f"{self.name}: known has {self.known}, the tree has {self.tree}"


@dataclass(frozen=True)
class Comparison:
    """What the tree asks for (in normal form, sorted), how that differs from what is known, and what was not readable.

    `unread` are sentences; while there are any, `found` and `differences` may be short of something.
    """

    found: tuple[str, ...]
    differences: tuple[Difference, ...]
    unread: tuple[str, ...]


@dataclass
class _Reading:
    """Requirements as they are read, and what could not be; `seen` are the files that were included."""

    files: Mapping[str, str]
    texts: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


def is_requirement_file(path: str) -> bool:
    """Whether a file of a tree may say what it asks for; for choosing what to read out of a tar."""
    return REQUIREMENT_FILE.fullmatch(path) is not None


def compare(known: Sequence[str], files: Mapping[str, str], places: Sequence[str]) -> Comparison:
    """Compare `known` (PEP 508) with what `places` of the tree ask for together; `files` is {path: text}.

    Names, extras and specifiers are compared in normal form, specifiers and extras as sets; a name that is there twice
    under the same marker asks for both. Raises `packaging.requirements.InvalidRequirement` for a bad `known`.
    """
    reading = _Reading(files)
    for place in places:
        _read_place(reading, place)
    found = [requirement for text in reading.texts if (requirement := _requirement(reading, text)) is not None]
    ours, theirs = _by_name(Requirement(text) for text in known), _by_name(found)
    differences = tuple(
        Difference(name, _written(ours.get(name)), _written(theirs.get(name)))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name, {}).keys() != theirs.get(name, {}).keys()
    )
    texts = tuple(sorted(text for asked in theirs.values() for text in asked.values()))
    return Comparison(texts, differences, tuple(reading.unread))


def _requirement(reading: _Reading, text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        reading.unread.append(f"{text!r} names no distribution")
        return None


def _by_name(requirements: Iterable[Requirement]) -> dict[str, dict[tuple[object, ...], str]]:
    """{name: {what is compared: text in normal form}}, those of one name and marker put together."""
    merged: dict[tuple[str, str], Requirement] = {}
    for one in requirements:
        name = canonicalize_name(one.name)
        there = merged.setdefault((name, str(one.marker or "")), one)
        if there is not one:
            there.specifier &= one.specifier
            there.extras |= one.extras
            there.url = there.url or one.url
    found: dict[str, dict[tuple[object, ...], str]] = {}
    for (key, marker), one in merged.items():
        extras = frozenset(canonicalize_name(extra) for extra in one.extras)
        found.setdefault(key, {})[one.specifier, extras, marker, one.url] = _text(key, extras, one, marker)
    return found


def _text(name: str, extras: frozenset[str], one: Requirement, marker: str) -> str:
    extra = f"[{','.join(sorted(extras))}]" if extras else ""
    wanted = f" @ {one.url}" if one.url else ",".join(sorted(str(one.specifier).split(",")))
    return f"{name}{extra}{wanted}" + (f"; {marker}" if marker else "")


def _written(asked: Mapping[tuple[object, ...], str] | None) -> str:
    return " and ".join(sorted(asked.values())) if asked else NOTHING


def _read_place(reading: _Reading, place: str) -> None:
    path, _, what = place.partition(":")
    text = reading.files.get(path)
    if what not in {"", BUILD}:
        reading.unread.append(f"{place}: a file, or pyproject.toml:{BUILD}, can be a place")
    elif text is None:
        reading.unread.append(f"{path} is not in the tree")
    elif path.endswith(".toml"):
        _read_toml(reading, path, text, what)
    elif path.endswith(".py"):
        found, fault = install_requires(text)
        reading.texts += found
        reading.unread += [f"{path}: {fault}"] if fault else []
    else:
        _read_requirements(reading, path, text)


def _read_requirements(reading: _Reading, path: str, text: str) -> None:
    """A file as pip reads it. Options and constraints ask for nothing."""
    reading.seen.add(path)
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        asked = COMMENT.sub("", line).strip()
        included = INCLUDE.fullmatch(asked)
        if included:
            inner = posixpath.normpath(posixpath.join(posixpath.dirname(path), included[1].strip()))
            if inner in reading.seen:
                continue
            if inner in reading.files:
                _read_requirements(reading, inner, reading.files[inner])
            else:
                reading.unread.append(f"{path} includes {inner}, which is not in the tree")
        elif asked.startswith(("-e", "--editable")):
            reading.unread.append(f"{path}: {asked!r} names no distribution")
        elif asked and not asked.startswith("-"):
            reading.texts.append(OPTIONS.sub("", asked))


def _read_toml(reading: _Reading, path: str, text: str, what: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reading.unread.append(f"{path} is no TOML: {error}")
        return
    project = _table(data, "project")
    if what == BUILD:
        reading.texts += _table(data, what).get("requires", [])
    elif "project" not in data:
        reading.unread.append(f"{path} has no [project]: what the tree asks for is in setup.py or setup.cfg")
    elif "dependencies" in project.get("dynamic", []):
        _read_dynamic(reading, path, _table(data, "tool", "setuptools", "dynamic", "dependencies"))
    else:
        reading.texts += project.get("dependencies", [])


def _read_dynamic(reading: _Reading, path: str, dynamic: Mapping[str, Any]) -> None:
    """What setuptools reads from files when pyproject.toml leaves the dependencies open."""
    names = dynamic.get("file", [])
    if not names:
        reading.unread.append(f"{path} leaves its dependencies to setup.py: name that file as a place")
    for name in [names] if isinstance(names, str) else names:
        inner = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        _read_place(reading, inner)


def _table(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found: Any = data
    for name in names:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


REQUIRES = "install_requires"
# A list of texts, a text, or None: only a run would give it.
Value = list[str] | str | None


def install_requires(text: str) -> tuple[list[str], str]:
    """Return the list `install_requires` of a setup.py, and a sentence on why it cannot be read, or "".

    It is an argument of setup() or, where that has none, a variable. A setup() that is called without it asks for
    nothing. Lists may be added, appended to, extended and named in between.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return [], f"it is no Python: {error}"
    names: dict[str, Value] = {}
    for statement, is_certain in _statements(tree.body):
        for target, value, is_added in _changes(statement):
            names[target] = _learned(names, target, value, is_added=is_added) if is_certain else None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "setup"]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == REQUIRES]
    if given or REQUIRES in names:
        found = _value(names, given[0]) if given else names[REQUIRES]
        if isinstance(found, list):
            return found, ""
        what = f"line {given[0].lineno}: " if given else ""
        return [], f"{what}{REQUIRES} cannot be read without running it; a file that it reads can be a place itself"
    if not calls:
        return [], f"it has neither a list {REQUIRES} nor a call of setup()"
    is_open = any(keyword.arg is None for call in calls for keyword in call.keywords)
    return [], f"setup() is called with **, which may hold {REQUIRES}" if is_open else ""


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


def _learned(names: Mapping[str, Value], target: str, value: ast.expr, *, is_added: bool) -> Value:
    """Return what a name is after a change of it."""
    new, old = _value(names, value), names.get(target)
    if not is_added or new is None:
        return new
    return [*old, *([new] if isinstance(new, str) else new)] if isinstance(old, list) else None


def _value(names: Mapping[str, Value], node: ast.expr) -> Value:
    """Return the value of an expression of lists and texts."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            parts = [_part(names, element) for element in elements]
            return None if None in parts else [text for part in parts for text in part or ()]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            one, other = _value(names, left), _value(names, right)
            if isinstance(one, str) and isinstance(other, str):
                return one + other
            return one + other if isinstance(one, list) and isinstance(other, list) else None
        case ast.Name(id=name):
            return names.get(name)
        case _:
            return None


def _part(names: Mapping[str, Value], element: ast.expr) -> list[str] | None:
    """Return what an element brings into its list."""
    if isinstance(element, ast.Starred):
        found = _value(names, element.value)
        return found if isinstance(found, list) else None
    found = _value(names, element)
    return [found] if isinstance(found, str) else None
