"""Make the entry for a release or a commit in a component's file, from the content of that release or commit."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import yaml
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from ruamel.yaml.nodes import MappingNode

from cannery.catalog.component import FromSource, Known, Wheels
from cannery.catalog.target import package_name
from cannery.errors import UsageError
from cannery.sources.requires import compare
from cannery.util.yaml_edit import line_end, quoted, root_node, value_of, with_first
from cannery.util.yaml_output import yaml_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cannery.catalog.component import Component

PYPROJECT, SETUP = "pyproject.toml", "setup.py"
# Files that may hold a tree's requirements, best first.
PLACES = (PYPROJECT, SETUP, "requirements.txt")
# `__version__ = "1.0"`, or `version="1.0",` in a call of setup().
VERSION_LINE = re.compile(r"(?:^|[(,])\s*(?:__)?version(?:__)?\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class Tree:
    """What was read from a release or a commit: files (path: text), its METADATA or PKG-INFO, its date.

    `what` names it in the entry's `source`. A commit also has `submodules`, and `patches`: by component, the commits
    that it has patch sets for.
    """

    what: str
    files: Mapping[str, str] = field(default_factory=dict)
    metadata: str = ""
    date: str = ""
    submodules: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def places_of(component: Component, *, commit: bool) -> tuple[str, ...]:
    """Return the places from which the newest entry of a component was read, or ()."""
    if not isinstance(component, FromSource):
        return ()
    entries: Iterable[Known] = component.revisions.values() if commit else component.releases.values()
    return next((one.requires_from for one in entries if one.requires_from), ())


def make_entry(tree: Tree, places: tuple[str, ...], day: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of an entry for a tree. Its requirements are read from `places`, or else from its metadata.

    `without` are globs of packages to leave out, because only another build requires them. Raises `UsageError` for a
    place that cannot be read.
    """
    value: dict[str, Any] = {}
    metadata, _ = parse_email(tree.metadata)
    if places or not tree.metadata:
        places = places or tuple(place for place in PLACES if place in tree.files)[:1]
        found = compare((), tree.files, places)
        if found.unread or not places:
            what = f"{tree.what}: {'; '.join(found.unread) or 'no file lists its requirements'}"
            raise UsageError(what, hint="name the files that do: --from requirements.txt --from setup.py")
        value = {"requires": list(found.found), "requires_from": list(places)}
        read = " and ".join(places)
    else:
        value = {"requires": [text for text in metadata.get("requires_dist", ()) if not _is_extra(text)]}
        read = "METADATA"
    python = metadata.get("requires_python") or _project(tree.files).get("requires-python")
    value |= {"requires_python": python} if python else {}
    if PYPROJECT in tree.files:
        value |= {"build_requires": list(compare((), tree.files, (f"{PYPROJECT}:build-system",)).found)}
        read += "" if PYPROJECT in places else f" and {PYPROJECT}"
    if tree.submodules:
        value |= {"submodules": {path: dict(one) for path, one in tree.submodules.items()}}
    value |= {"patches": {name: list(ids) for name, ids in tree.patches.items()}} if tree.patches else {}
    value |= {"date": tree.date} if tree.date else {}
    value["requires"] = [text for text in value["requires"] if not any(fnmatch(package_name(text), w) for w in without)]
    less = f" without {', '.join(without)}" if without else ""
    return {**value, "source": f"{read} of {tree.what}{less}, read {day}"}


def _is_extra(text: str) -> bool:
    """Whether a requirement applies only with an extra."""
    try:
        return "extra" in str(Requirement(text).marker or "")
    except InvalidRequirement:
        return False


def _project(files: Mapping[str, str]) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(files.get(PYPROJECT, "")).get("project", {}))
    except tomllib.TOMLDecodeError:
        return {}


def version_of(files: Mapping[str, str]) -> str:
    """Return the version that a file of a tree has as plain text, or ""."""
    if isinstance(version := _project(files).get("version"), str):
        return version
    for name, text in files.items():
        if name.rpartition("/")[2] in {"version.txt", "VERSION", "version"}:
            return text.strip()
    code = (text for name, text in files.items() if name.endswith((SETUP, "version.py", "__init__.py")))
    return next((found[1] for text in code if (found := VERSION_LINE.search(text))), "")


def table_of(component: Component, *, commit: bool) -> str:
    """Return the name of the table for such an entry; "" for a component that needs none, as its index has enough."""
    if isinstance(component, FromSource):
        return "revisions" if commit else "releases"
    return "metadata" if isinstance(component, Wheels) and component.index and not commit else ""


def entry_text(key: str, value: Mapping[str, Any]) -> str:
    """Return an entry as YAML text for a component's table, without a line end."""
    lines = yaml_output(dict(value)).rstrip("\n").splitlines()
    return "\n".join([f"{quoted(key)}:", *(f"  {line}" for line in lines)])


def with_entry(text: str, table: str, key: str, value: Mapping[str, Any], where: str) -> str:
    """Return the text of a component's file with a new first entry in `table`, which is added if it is missing.

    No other byte changes. Raises `UsageError` for a file that is not in YAML's block style.
    """
    root, wanted, entry = root_node(text), yaml.safe_load(text), entry_text(key, value)
    node = value_of(root, table)
    if node is None:
        end = line_end(text, root.value[-1][1].end_mark.index)
        new = f"{text[:end].rstrip()}\n{table}:\n  " + entry.replace("\n", "\n  ") + "\n"
    else:
        is_flow = not isinstance(node, MappingNode) or node.flow_style
        new = text if is_flow else with_first(text, root, table, entry)
    wanted[table] = {key: dict(value), **(wanted.get(table) or {})}
    if yaml.safe_load(new) != wanted:
        raise UsageError(f"{table} cannot be edited", where=where, hint=f"add this there by hand:\n{entry}")
    return new
