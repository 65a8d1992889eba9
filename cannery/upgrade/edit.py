"""Edits of a profile's text: a component's version, a package's date. Every other byte stays.

ruamel.yaml finds where a value is written, in any style; only that place of the text changes. What comes out is read
again and compared with what was wanted. Where the two differ (an alias that two places share, an unforeseen style)
nothing is changed, and the error names the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from packaging.utils import canonicalize_name
from ruamel.yaml.nodes import MappingNode, ScalarNode

from cannery.catalog.catalog import Profile
from cannery.errors import UsageError
from cannery.util.yaml_edit import after, applied, entry, first, node_at, over, quoted, root_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.util.yaml_edit import Change

    # Keys and positions from the root of a file to a value; and with it the text, or the entry that is new there.
    Path = tuple[str | int, ...]
    Put = tuple[Path, str | dict[str, str]]

DATES, COMPONENTS = "exclude_newer_packages", "components"
# A new table of dates comes after this key, which every profile has.
BEFORE = "exclude_newer"
# The reason that is written beside a new date; one that is there stays.
REASON = "by build.py lock --upgrade"


@dataclass(frozen=True)
class SetVersion:
    """Pin a component to a version."""

    component: str
    version: str

    def __str__(self) -> str:
        return f"version: {quoted(self.version)} of component {self.component}"


@dataclass(frozen=True)
class SetDate:
    """Let a package's uploads count up to `date`."""

    package: str
    date: str

    def __str__(self) -> str:
        return f"{DATES}: {entry(self.package, {'date': self.date, 'reason': REASON})}"


Edit = SetVersion | SetDate


def edit_profile(text: str, edits: Sequence[Edit], where: str) -> tuple[str, Profile]:
    """Return `text`, a profile's file, with `edits` made, and the profile that it then is.

    Raises `UsageError` that names the line (`where` is the file's name) and what to write there, when an edit would
    change anything else.
    """
    for edit in edits:
        profile = _parsed(text)
        path, value = _put(profile, edit) if profile else ((), "")
        wanted = _with(profile, path, value) if profile else None
        if profile is not None and wanted == profile:
            continue
        change = _change(text, root_node(text), path, value) if profile else None
        changed = applied(text, [change]) if change else ""
        if wanted is None or _parsed(changed) != wanted:
            raise UsageError(
                "the file is written in a way that cannot be edited without changing more than was asked",
                where=f"{where}:{change.line if change else 1}",
                hint=f"write there by hand, then run lock: {edit}",
            )
        text = changed
    return text, Profile.model_validate(yaml.safe_load(text))


def _put(profile: Profile, edit: Edit) -> Put:
    """Return what to write where."""
    if isinstance(edit, SetVersion):
        at = next(n for n, pin in enumerate(profile.components) if _same(pin.name, edit.component))
        return (COMPONENTS, at, "version"), edit.version
    key = next((name for name in profile.exclude_newer_packages if _same(name, edit.package)), None)
    if key is None:
        return (DATES, edit.package), {"date": edit.date, "reason": REASON}
    return (DATES, key, "date"), edit.date


def _with(profile: Profile, path: Path, value: str | dict[str, str]) -> Profile:
    """Return the profile with `value` at `path`, as `_change` makes it in the text."""
    place: Any = profile.model_dump(mode="json")
    data = place
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return Profile.model_validate(data)


def _change(text: str, root: MappingNode, path: Path, value: str | dict[str, str]) -> Change:
    parent, there = node_at(root, path[:-1]), node_at(root, path)
    if isinstance(value, str) and isinstance(there, ScalarNode):
        return over(text, there, value)
    if isinstance(value, str) and isinstance(parent, MappingNode):
        return after(text, parent, "name", f"{path[-1]}: {quoted(value)}")
    table, new = str(path[0]), entry(path[1], value)
    if parent is not None:
        return first(text, root, table, new)
    return after(text, root, BEFORE, f"{table}: {{{new}}}" if root.flow_style else f"{table}:\n  {new}")


def _parsed(text: str) -> Profile | None:
    try:
        return Profile.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError):  # pydantic's errors are ValueErrors
        return None


def _same(one: str, other: str) -> bool:
    return canonicalize_name(one) == canonicalize_name(other)
