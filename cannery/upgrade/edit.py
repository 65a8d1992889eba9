"""Edits of a profile's text: a component's version, a package's date, a bound. Every other byte stays.

ruamel.yaml finds where a value is written, in any style; only those places of the text change. What comes out is read
again and compared with what was wanted. Where the two differ (an alias that two places share, an unforeseen
style) nothing is changed, and the error names the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from cannery.catalog.catalog import Profile
from cannery.errors import UsageError
from cannery.util.yaml_edit import after, applied, entry, first, node_at, over, quoted, root_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.util.yaml_edit import Change

    # Keys and positions from the root of a file to a value; and with it the text, or the entry that is new there.
    Path = tuple[str | int, ...]
    Put = tuple[Path, str | dict[str, str]]

DATES, BOUNDS, COMPONENTS = "exclude_newer_packages", "constraints", "components"
# A new table of dates or bounds comes after this key, which every profile has.
BEFORE = "exclude_newer"


@dataclass(frozen=True)
class SetVersion:
    """Pin a component to a version. `reason` takes the place of one that is there; with "" that one stays."""

    component: str
    version: str
    reason: str = ""

    def __str__(self) -> str:
        text = f"version: {quoted(self.version)} of component {self.component}"
        return text + (f", reason: {quoted(self.reason)}" if self.reason else "")


@dataclass(frozen=True)
class SetDate:
    """Let a package's uploads count up to `date`, for `reason`."""

    package: str
    date: str
    reason: str

    def __str__(self) -> str:
        return f"{DATES}: {entry(self.package, {'date': self.date, 'reason': self.reason})}"


@dataclass(frozen=True)
class SetBound:
    """Hold a package at one version by a constraint, for `reason`."""

    package: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"{BOUNDS}: {entry(0, {'requirement': self.requirement, 'reason': self.reason})}"

    @property
    def requirement(self) -> str:
        """The constraint's requirement."""
        return f"{self.package}=={self.version}"


Edit = SetVersion | SetDate | SetBound


def edit_profile(text: str, edits: Sequence[Edit], where: str) -> tuple[str, Profile]:
    """Return `text`, a profile's file, with `edits` made, and the profile that it then is.

    Raises `UsageError` that names the line (`where` is the file's name) and what to write there, when an edit would
    change anything else.
    """
    for edit in edits:
        profile, wanted = _parsed(text), _unshared(yaml.safe_load(text))
        puts = (
            [(path, value) for path, value in _puts(profile, edit) if _value(wanted, path) != value] if profile else []
        )
        changes = [_change(text, root_node(text), *put) for put in puts]
        for put in puts:
            _put(wanted, *put)
        changed = applied(text, changes)
        if _parsed(changed) is None or yaml.safe_load(changed) != wanted:
            raise UsageError(
                "the file is written in a way that cannot be edited without changing more than was asked",
                where=f"{where}:{changes[0].line if changes else 1}",
                hint=f"write there by hand, then run lock: {edit}",
            )
        text = changed
    return text, Profile.model_validate(yaml.safe_load(text))


def held_bound(profile: Profile, package: str) -> tuple[str, str] | None:
    """Return version and reason of the constraint that holds a package at one version; None without one."""
    found = next((bound for bound in profile.constraints if _is_pin(bound.requirement, package)), None)
    if found is None:
        return None
    (part,) = Requirement(found.requirement).specifier
    return part.version, found.reason


def line_of(text: str, table: str, key: str, value: str) -> int:
    """Return the 1-based line of the item of `table`, a list in a profile's text, whose `key` is `value`; 1 without."""
    items = node_at(root_node(text), (table,))
    for item in items.value if isinstance(items, SequenceNode) else ():
        found = node_at(item, (key,))
        if found is not None and found.value == value:
            return int(item.start_mark.line) + 1
    return 1


def _puts(profile: Profile, edit: Edit) -> list[Put]:
    """Return what to write where."""
    match edit:
        case SetVersion():
            pins = enumerate(profile.components)
            at, pin = next(pair for pair in pins if _same(pair[1].name, edit.component))
            reasons: list[Put] = [((COMPONENTS, at, "reason"), edit.reason)] if edit.reason and pin.reason else []
            return [((COMPONENTS, at, "version"), edit.version), *reasons]
        case SetDate():
            key = next((name for name in profile.exclude_newer_packages if _same(name, edit.package)), None)
            values = {"date": edit.date, "reason": edit.reason}
            if key is None:
                return [((DATES, edit.package), values)]
            return [((DATES, key, name), text) for name, text in values.items()]
        case SetBound():
            bounds = enumerate(profile.constraints)
            number = next((n for n, bound in bounds if _is_pin(bound.requirement, edit.package)), None)
            values = {"requirement": edit.requirement, "reason": edit.reason}
            if number is None:
                return [((BOUNDS, 0), values)]
            return [((BOUNDS, number, name), text) for name, text in values.items()]


def _unshared(data: object) -> object:
    """Return a copy in which an alias is a value of its own."""
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return [_unshared(value) for value in data] if isinstance(data, list) else data


def _value(data: object, path: Path) -> object:
    """Return the value at `path` in YAML's data; None when there is none."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        else:
            data = data[step] if isinstance(data, list) and isinstance(step, int) and step < len(data) else None
    return data


def _put(data: object, path: Path, value: str | dict[str, str]) -> None:
    """Make in YAML's data what `_change` makes in the text."""
    *parents, last = path
    table = _value(data, tuple(parents))
    if table is None and isinstance(data, dict):
        table = data[parents[0]] = [] if isinstance(last, int) else {}
    if isinstance(table, list) and isinstance(last, int):
        table.insert(last, value)
    elif isinstance(table, dict):
        table[last] = value


def _change(text: str, root: MappingNode, path: Path, value: str | dict[str, str]) -> Change:
    parent, there = node_at(root, path[:-1]), node_at(root, path)
    if isinstance(value, str) and isinstance(there, ScalarNode):
        return over(text, there, value)
    if isinstance(value, str) and isinstance(parent, MappingNode):
        return after(text, parent, "name", f"{path[-1]}: {quoted(value)}")
    table, new = str(path[0]), entry(path[1], value)
    if parent is not None:
        return first(text, root, table, new)
    opening, closing, dash = ("[", "]", "- ") if isinstance(path[1], int) else ("{", "}", "")
    flow, block = f" {opening}{new}{closing}", f"\n  {dash}{new}"
    return after(text, root, BEFORE, f"{table}:{flow if root.flow_style else block}")


def _parsed(text: str) -> Profile | None:
    try:
        return Profile.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError):  # pydantic's errors are ValueErrors
        return None


def _same(one: str, other: str) -> bool:
    return canonicalize_name(one) == canonicalize_name(other)


def _is_pin(requirement: str, package: str) -> bool:
    """Whether a constraint holds `package` at one version, without conditions."""
    found = Requirement(requirement)
    return _same(found.name, package) and [p.operator for p in found.specifier] == ["=="] and not found.marker
