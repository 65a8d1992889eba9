"""Edits of a profile's text: a component's version, a package's date, a bound. Every other byte stays.

ruamel.yaml finds where a value is written, in any style; only those places of the text change. What comes out is read
again and compared with what was wanted. Where the two differ (an alias that two places share, an unforeseen
style) nothing is changed, and the error names the line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from cannery.catalog.catalog import Profile
from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ruamel.yaml.nodes import Node

    # Keys and positions from the root of a file to a value; and with it the text, or the entry that is new there.
    Path = tuple[str | int, ...]
    Put = tuple[Path, str | dict[str, str]]

DATES, BOUNDS, COMPONENTS = "exclude_newer_packages", "constraints", "components"
# A new table of dates or bounds comes after this key, which every profile has.
BEFORE = "exclude_newer"
PLAIN_KEY = re.compile(r"[a-z][a-z0-9._-]*", re.IGNORECASE | re.ASCII)
LINE_END = re.compile(r"\r?\n")
# The styles of a scalar that has lines of its own.
BLOCK = frozenset({"|", ">"})


@dataclass(frozen=True)
class SetVersion:
    """Pin a component to a version. `reason` takes the place of one that is there; with "" that one stays."""

    component: str
    version: str
    reason: str = ""

    def __str__(self) -> str:
        text = f"version: {_quoted(self.version)} of component {self.component}"
        return text + (f", reason: {_quoted(self.reason)}" if self.reason else "")


@dataclass(frozen=True)
class SetDate:
    """Let a package's uploads count up to `date`, for `reason`."""

    package: str
    date: str
    reason: str

    def __str__(self) -> str:
        return f"{DATES}: {_entry(self.package, {'date': self.date, 'reason': self.reason})}"


@dataclass(frozen=True)
class SetBound:
    """Hold a package at one version by a constraint, for `reason`."""

    package: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"{BOUNDS}: {_entry(0, {'requirement': self.requirement, 'reason': self.reason})}"

    @property
    def requirement(self) -> str:
        """The constraint's requirement."""
        return f"{self.package}=={self.version}"


Edit = SetVersion | SetDate | SetBound


@dataclass(frozen=True)
class Change:
    """`new` takes the place of [start, end) of a text; `line` (1-based) is where a reader would look."""

    start: int
    end: int
    new: str
    line: int


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
        changes = [_change(text, _nodes(text), *put) for put in puts]
        for put in puts:
            _put(wanted, *put)
        changed = text
        for change in sorted(changes, key=lambda change: change.start, reverse=True):  # the positions are of `text`
            new = change.new.replace("\n", "\r\n") if "\r\n" in text else change.new
            changed = changed[: change.start] + new + changed[change.end :]
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
    items = _at(_nodes(text), (table,))
    for item in items.value if isinstance(items, SequenceNode) else ():
        found = _at(item, (key,))
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
    parent, there = _at(root, path[:-1]), _at(root, path)
    if isinstance(value, str) and isinstance(there, ScalarNode):
        return _over(text, there, value)
    if isinstance(value, str) and isinstance(parent, MappingNode):
        return _after(text, parent, "name", f"{path[-1]}: {_quoted(value)}")
    table, entry = str(path[0]), _entry(path[1], value)
    if parent is not None:
        return _first(text, root, table, entry)
    opening, closing, dash = ("[", "]", "- ") if isinstance(path[1], int) else ("{", "}", "")
    flow, block = f" {opening}{entry}{closing}", f"\n  {dash}{entry}"
    return _after(text, root, BEFORE, f"{table}:{flow if root.flow_style else block}")


def _nodes(text: str) -> MappingNode:
    root = YAML().compose(text)
    if not isinstance(root, MappingNode):
        raise TypeError("a profile is a mapping")
    return root


def _at(node: Node | None, path: Sequence[str | int]) -> Node | None:
    """Return the node at `path` below `node`; None when there is none."""
    for step in path:
        if isinstance(node, MappingNode):
            node = next((value for name, value in node.value if name.value == step), None)
        elif isinstance(node, SequenceNode) and isinstance(step, int):
            node = node.value[step] if step < len(node.value) else None
        else:
            return None
    return node


def _over(text: str, node: ScalarNode, value: str) -> Change:
    """Put `value` in the place of a scalar, in quotes: the single ones that it had, else double ones."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in BLOCK:  # its mark is after the empty lines that follow, and its first line may have a comment
        end = start + len(text[start:end].rstrip())
    new = f"'{value}'" if node.style == "'" and "'" not in value else _quoted(value)
    return Change(start, end, new, node.start_mark.line + 1)


def _after(text: str, mapping: MappingNode, key: str, entry: str) -> Change:
    """Put `entry` after the entry of `key`, whose value is a scalar: in block style on lines of its own."""
    name, value = next((k, v) for k, v in mapping.value if k.value == key)
    line, end = name.start_mark.line + 1, value.end_mark.index
    if mapping.flow_style:
        return Change(end, end, f", {entry}", line)
    end = _line_end(text, end)
    indent = " " * name.start_mark.column
    return Change(end, end, "".join(f"\n{indent}{part}" for part in entry.split("\n")), line)


def _first(text: str, mapping: MappingNode, key: str, entry: str) -> Change:
    """Put `entry` as the first one into the collection that is the value of `key`.

    Not as the last one: a comment above the next key would then seem to be about the new entry.
    """
    name, node = next((k, v) for k, v in mapping.value if k.value == key)
    line = name.start_mark.line + 1
    if node.flow_style:
        at = node.start_mark.index + 1
        return Change(at, at, entry + (", " if node.value else ""), line)
    dash = "- " if isinstance(node, SequenceNode) else ""
    end = _line_end(text, name.end_mark.index)
    return Change(end, end, f"\n{' ' * node.start_mark.column}{dash}{entry}", line)


def _line_end(text: str, index: int) -> int:
    found = LINE_END.search(text, index)
    return found.start() if found else len(text)


def _entry(key: str | int, values: str | dict[str, str]) -> str:
    """Return an entry in flow style: of a mapping with its key, of a sequence (a position as key) without."""
    if isinstance(values, str):
        return f"{key}: {_quoted(values)}"
    flow = f"{{{', '.join(f'{name}: {_quoted(text)}' for name, text in values.items())}}}"
    return flow if isinstance(key, int) else f"{_key(key)}: {flow}"


def _key(name: str) -> str:
    """Return `name` as a key: quoted where YAML would read something else than a text."""
    return name if PLAIN_KEY.fullmatch(name) and isinstance(yaml.safe_load(name), str) else _quoted(name)


def _quoted(text: str) -> str:
    """Return a double-quoted scalar; JSON's escapes are YAML's too."""
    return json.dumps(text, ensure_ascii=False)


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
