"""Compare the requirements in a source tree with those that its component records. The tree's code is not run.

A *place* is a file of the tree: a requirements file (with files included by -r), a pyproject.toml (with dependencies
that setuptools reads from files), or a setup.py. `pyproject.toml:build-system` are the build requirements.
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
    from collections.abc import Iterable, Mapping, Sequence

NOTHING, BUILD = "nothing", "build-system"
# A comment is at the start of a line or after a space: `name @ https://host/file#sha256=…` has none.
COMMENT = re.compile(r"(?:^|\s)#.*$")
# What may follow a requirement: --hash=…, --config-settings …
OPTIONS = re.compile(r"\s+--?[A-Za-z].*$")
INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S.*)")
REQUIREMENT_FILE = re.compile(
    r"(?:.*/)?(?:[^/]*requirements[^/]*\.(?:txt|in)|requirements/.*|pyproject[^/]*\.toml|setup\.py)"
)


@dataclass(frozen=True)
class Difference:
    """A distribution whose requirements differ between a component and its tree; each side as text, or "nothing"."""

    name: str
    known: str
    tree: str

    def __str__(self) -> str:
        return f"{self.name}: known has {self.known}, the tree has {self.tree}"


@dataclass(frozen=True)
class Comparison:
    """The tree's requirements (normalised, sorted), their differences from the known ones, and what was not readable.

    `unread` are sentences. If there are any, `found` and `differences` may be incomplete.
    """

    found: tuple[str, ...]
    differences: tuple[Difference, ...]
    unread: tuple[str, ...]


@dataclass
class _Reading:
    """The requirements read so far, and what could not be read; `seen` are the included files."""

    files: Mapping[str, str]
    texts: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


def is_requirement_file(path: str) -> bool:
    """Whether a file of a tree may list requirements. Only such files are read from a tar."""
    return REQUIREMENT_FILE.fullmatch(path) is not None


def compare(known: Sequence[str], files: Mapping[str, str], places: Sequence[str]) -> Comparison:
    """Compare `known` (PEP 508) with the requirements of all `places`; `files` is {path: text}.

    Names, extras and specifiers are normalised. Two requirements with the same name and marker are joined. Raises
    `packaging.requirements.InvalidRequirement` for a bad `known`.
    """
    reading = _Reading(files)
    for place in places:
        _read_place(reading, place)
    found = []
    for text in reading.texts:
        try:
            found.append(Requirement(text))
        except InvalidRequirement:
            reading.unread.append(f"{text!r} names no distribution")
    ours, theirs = _by_name(Requirement(text) for text in known), _by_name(found)
    differences = tuple(
        Difference(name, _written(ours.get(name, ())), _written(theirs.get(name, ())))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    )
    texts = tuple(sorted(str(one) for asked in theirs.values() for one in asked))
    return Comparison(texts, differences, tuple(reading.unread))


def _by_name(requirements: Iterable[Requirement]) -> dict[str, set[Requirement]]:
    """Return {name: requirements}, normalised; those with the same name and marker are joined."""
    merged: dict[tuple[str, str], Requirement] = {}
    for one in requirements:
        one.name = canonicalize_name(one.name)
        one.extras = {canonicalize_name(extra) for extra in one.extras}
        joined = merged.setdefault((one.name, str(one.marker or "")), one)
        if joined is not one:
            joined.specifier &= one.specifier
            joined.extras |= one.extras
            joined.url = joined.url or one.url
    found: dict[str, set[Requirement]] = {}
    for one in merged.values():
        found.setdefault(one.name, set()).add(one)
    return found


def _written(asked: Iterable[Requirement]) -> str:
    return " and ".join(sorted(map(str, asked))) or NOTHING


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
    """Read a requirements file as pip does. Options and constraints are ignored."""
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
        reading.unread.append(f"{path} is not TOML: {error}")
        return
    project = _table(data, "project")
    if what == BUILD:
        reading.texts += _table(data, what).get("requires", [])
    elif "project" not in data:
        reading.unread.append(f"{path} has no [project]: what the tree asks for is in setup.py or setup.cfg")
    elif "dependencies" in project.get("dynamic", []):
        # setuptools reads them from files.
        names = _table(data, "tool", "setuptools", "dynamic", "dependencies").get("file", [])
        if not names:
            reading.unread.append(f"{path} leaves its dependencies to setup.py: name that file as a place")
        for name in [names] if isinstance(names, str) else names:
            _read_place(reading, posixpath.normpath(posixpath.join(posixpath.dirname(path), name)))
    else:
        reading.texts += project.get("dependencies", [])


def _table(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found: Any = data
    for name in names:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


REQUIRES = "install_requires"


def install_requires(text: str) -> tuple[list[str], str]:
    """Return the `install_requires` of a setup.py, and why it cannot be read, or "".

    It may be a literal list in the call of setup(), or a variable that is set once and used only there.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return [], f"it is not Python: {error}"
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and "setup" in {getattr(node.func, "attr", ""), getattr(node.func, "id", "")}
    ]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == REQUIRES]
    if not calls:
        return [], "it has no call of setup()"
    if not given:
        is_open = any(keyword.arg is None for call in calls for keyword in call.keywords)
        return [], f"setup() is called with **, which may hold {REQUIRES}" if is_open else ""
    try:
        found = ast.literal_eval(_written_once(tree, given[0]))
    except ValueError:
        found = None
    if isinstance(found, list | tuple) and all(isinstance(one, str) for one in found):
        return list(found), ""
    what = f"line {given[0].lineno}: {REQUIRES} cannot be read without running it"
    return [], f"{what}; a file that it reads can be a place itself"


def _written_once(tree: ast.Module, node: ast.expr) -> ast.expr:
    """Return the value of a variable that is set once and used once; any other expression unchanged."""
    name = node.id if isinstance(node, ast.Name) else ""
    if sum(isinstance(one, ast.Name) and one.id == name for one in ast.walk(tree)) != 2:
        return node
    values = [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and [getattr(target, "id", "") for target in one.targets] == [name]
    ]
    return values[0] if values else node
