"""`extends: NAME` in a profile: the fields of profile NAME, and on top of them its own.

What it gives itself takes the place of what NAME has: of a table (`target`, `env` …) entry by entry, of `components` by
name, of `constraints`, `overrides` and `excludes` by package, of anything else as a whole. A component that NAME has
keeps its place, and a new one comes after the last component that is given by its name alone, else last. `without`
leaves out all that NAME has about a package.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from cannery.errors import UsageError
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.catalog.yaml_text import Location, YamlDocument

COMPONENTS, BOUNDS, DATES = "components", ("constraints", "overrides", "excludes"), "exclude_newer_packages"
# Fields that a profile does not inherit: its place in the list, and what replaced it.
OWN = ("place", "replaced")
# An entry of a list, and its position in the file that extends; None: it is inherited.
Entry = tuple[Any, int | None]


def extended(name: str, documents: Mapping[str, YamlDocument], above: tuple[str, ...] = ()) -> YamlDocument:
    """Return the document of profile `name` with what it extends; `documents` are all profiles as they are written.

    What is inherited has the line of `extends`. Raises `UsageError` for a profile that there is not, and for one that
    extends itself in the end.
    """
    own = documents[name]
    parent = own.value.get("extends") if isinstance(own.value, dict) else None
    if not isinstance(parent, str):
        return own
    if parent not in documents:
        raise _fault(own, ("extends",), f"no profile {parent!r} that can be read", did_you_mean(parent, documents))
    if parent in (*above, name):
        ring = " extends ".join(documents[one].name for one in (*above, name, parent))
        raise _fault(own, ("extends",), f"the profiles extend each other: {ring}", "remove one `extends`")
    base = extended(parent, documents, (*above, name))
    if not isinstance(base.value, dict):
        raise _fault(own, ("extends",), f"{base.name} is no profile")
    inherited = {key: value for key, value in _left(own, base).items() if key not in OWN}
    merged = {**inherited, **own.value}
    lines = {(key,): own.lines[("extends",)] for key in merged} | {**own.lines}
    found = replace(own, value=merged, lines=lines)
    for key, value in own.value.items():
        there = inherited.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            merged[key] = {**there, **value}
        elif key in (COMPONENTS, *BOUNDS) and isinstance(there, list) and isinstance(value, list):
            entries = _components(there, value) if key == COMPONENTS else _bounds(there, value)
            merged[key] = [entry for entry, _ in entries]
            _place(found, own, key, entries)
    return found


def _fault(document: YamlDocument, path: Location, what: str, hint: str = "") -> UsageError:
    return UsageError(f"{path[0]}: {what}", where=document.where(path), hint=hint)


def _left(own: YamlDocument, base: YamlDocument) -> dict[str, Any]:
    """Return the fields of `base` without what `without` names. Raises `UsageError` for a name that is not there."""
    left = dict(base.value)
    names = own.value.get("without")
    for at, name in enumerate(names if isinstance(names, list) else ()):
        before = dict(left)
        for key in (COMPONENTS, *BOUNDS):
            if isinstance(left.get(key), list):
                left[key] = [entry for entry in left[key] if _package(entry) != canonicalize_name(str(name))]
        if isinstance(left.get(DATES), dict):
            package, dates = canonicalize_name(str(name)), left[DATES].items()
            left[DATES] = {key: day for key, day in dates if canonicalize_name(str(key)) != package}
        if left == before:
            raise _fault(own, ("without", at), f"{base.name} has nothing about {name!r}", "remove it")
    return left


def _package(entry: object) -> str:
    """Return what an entry of a list is about: a component's name, or a requirement's package; "" where it has none."""
    if not isinstance(entry, dict):
        return ""
    text = str(entry.get("name") or entry.get("requirement") or "")
    return canonicalize_name(re.split(r"[^\w.-]", text.strip(), maxsplit=1)[0])


def _components(there: Sequence[Any], own: Sequence[Any]) -> list[Entry]:
    """Merge by name. A name alone of a component that is there changes nothing: what follows comes after it."""
    found: list[Entry] = [(entry, None) for entry in there]
    place: int | None = None
    for number, entry in enumerate(own):
        names = [_package(one) if at is None else "" for one, at in found]
        at = names.index(_package(entry)) if _package(entry) in names else None
        if at is not None and entry.keys() == {"name"}:
            place = at + 1
        elif at is not None:
            found[at] = (entry, number)
        else:
            found.insert(len(found) if place is None else place, (entry, number))
            place = None if place is None else place + 1
    return found


def _bounds(there: Sequence[Any], own: Sequence[Any]) -> list[Entry]:
    """Merge by package: all bounds on a package are those of one file."""
    mine = {_package(entry) for entry in own}
    inherited: list[Entry] = [(entry, None) for entry in there if _package(entry) not in mine]
    return [*inherited, *((entry, number) for number, entry in enumerate(own))]


def _place(found: YamlDocument, own: YamlDocument, key: str, entries: Sequence[Entry]) -> None:
    """Note where the entries of a merged list are written."""
    known: Any = found.lines
    for path in [path for path in known if path[:1] == (key,) and len(path) > 1]:
        del known[path]
    for position, (_, number) in enumerate(entries):
        if number is None:
            known[(key, position)] = own.lines[("extends",)]
        else:
            moved = {(key, position, *path[2:]): at for path, at in own.lines.items() if path[:2] == (key, number)}
            known.update(moved)
