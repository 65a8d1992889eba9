"""Edits of a profile, of its text as of its model: a component's version, a package's date, a bound.

What comes out of an edited text is read again and held against the model that was wanted. Where the two differ (an
alias that two places share, a style that nobody thought of) nothing is changed, and the user is told the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.catalog.catalog import Later, Profile, Reasoned
from cannery.errors import UsageError
from cannery.upgrade.yaml_edit import Change, behind, compose, first, items_of, key_text, over, quoted, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

DATES, BOUNDS = "exclude_newer_packages", "constraints"
# A new table of either kind stands behind this key, which every profile has.
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
        return f"{DATES}: {self.entry}"

    @property
    def entry(self) -> str:
        """The entry in flow style."""
        return f"{key_text(self.package)}: {{date: {quoted(self.date)}, reason: {quoted(self.reason)}}}"


@dataclass(frozen=True)
class SetBound:
    """Hold a package at one version by a constraint, for `reason`."""

    package: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"{BOUNDS}: {self.entry}"

    @property
    def requirement(self) -> str:
        """The constraint's requirement."""
        return f"{self.package}=={self.version}"

    @property
    def entry(self) -> str:
        """The item in flow style."""
        return f"{{requirement: {quoted(self.requirement)}, reason: {quoted(self.reason)}}}"


Edit = SetVersion | SetDate | SetBound


def edit_profile(text: str, profile: Profile, edits: Sequence[Edit], where: str) -> tuple[str, Profile]:
    """Return `text`, the file of `profile`, with `edits` made, and the profile that it then is.

    Raises `UsageError` that names the line (`where` is the file's name) and what to write there, when an edit would
    change anything else.
    """
    for edit in edits:
        changes = _changes(text, edit)
        wanted, changed = edit_model(profile, (edit,)), text
        for change in sorted(changes, key=lambda change: change.start, reverse=True):  # the marks are of `text`
            changed = change.made_in(changed)
        if _parsed(changed) != wanted:
            raise UsageError(
                "the file is written in a way that cannot be edited without changing more than was asked",
                where=f"{where}:{changes[0].line}",
                hint=f"write there by hand, then run lock: {edit}",
            )
        text, profile = changed, wanted
    return text, profile


def edit_model(profile: Profile, edits: Sequence[Edit]) -> Profile:
    """Return `profile` with `edits` made."""
    for edit in edits:
        match edit:
            case SetVersion():
                update: dict[str, object] = {"components": _pins(profile, edit)}
            case SetDate():
                update = {DATES: _dates(profile, edit)}
            case SetBound():
                update = {BOUNDS: _bounds(profile.constraints, edit)}
        profile = profile.model_copy(update=update)
    return profile


def held_bound(profile: Profile, package: str) -> tuple[str, str] | None:
    """Return version and reason of the constraint that holds a package at one version; None without one."""
    found = next((bound for bound in profile.constraints if _is_pin(bound.requirement, package)), None)
    if found is None:
        return None
    (part,) = Requirement(found.requirement).specifier
    return part.version, found.reason


def component_line(text: str, name: str) -> int:
    """Return the 1-based line of the component `name` in a profile's text; 1 when it is not there."""
    node = _component(compose(text), name)
    return node.start_mark.line + 1 if node else 1


def override_line(text: str, requirement: str) -> int:
    """Return the 1-based line of the override `requirement` in a profile's text; 1 when it is not there."""
    nodes = items_of(value_of(compose(text), "overrides"))
    found = (node for node in nodes if (there := value_of(node, "requirement")) and there.value == requirement)
    return next((node.start_mark.line + 1 for node in found), 1)


def _pins(profile: Profile, edit: SetVersion) -> tuple[object, ...]:
    return tuple(
        pin.model_copy(update={"version": edit.version, "reason": (pin.reason and edit.reason) or pin.reason})
        if _same(pin.name, edit.component)
        else pin
        for pin in profile.components
    )


def _dates(profile: Profile, edit: SetDate) -> dict[str, Later]:
    dates = dict(profile.exclude_newer_packages)
    key = next((name for name in dates if _same(name, edit.package)), edit.package)
    return {**dates, key: Later(date=edit.date, reason=edit.reason)}


def _bounds(bounds: tuple[Reasoned, ...], edit: SetBound) -> tuple[Reasoned, ...]:
    at = next((number for number, bound in enumerate(bounds) if _is_pin(bound.requirement, edit.package)), None)
    if at is None:
        return (Reasoned(requirement=edit.requirement, reason=edit.reason), *bounds)
    changed = bounds[at].model_copy(update={"requirement": edit.requirement, "reason": edit.reason})
    return (*bounds[:at], changed, *bounds[at + 1 :])


def _changes(text: str, edit: Edit) -> tuple[Change, ...]:
    """Return what to change in the text, at least one place, the value's first."""
    root = compose(text)
    match edit:
        case SetVersion():
            return _version_changes(text, root, edit)
        case SetDate():
            return _date_changes(text, root, edit)
        case SetBound():
            return _bound_changes(text, root, edit)


def _version_changes(text: str, root: yaml.MappingNode, edit: SetVersion) -> tuple[Change, ...]:
    node = _component(root, edit.component)
    if node is None:
        raise ValueError(f"{edit.component} is no component of this profile")
    there = value_of(node, "version")
    if there is None:
        return (behind(text, node, "name", f"version: {quoted(edit.version)}"),)
    return (over(text, there, edit.version), *_reason_changes(text, node, edit.reason))


def _date_changes(text: str, root: yaml.MappingNode, edit: SetDate) -> tuple[Change, ...]:
    dates = value_of(root, DATES)
    if dates is None:
        table = f" {{{edit.entry}}}" if root.flow_style else f"\n  {edit.entry}"
        return (behind(text, root, BEFORE, f"{DATES}:{table}"),)
    for key, value in dates.value:
        if _same(key.value, edit.package):
            date = over(text, value_of(value, "date") or value, edit.date)
            return (date, *_reason_changes(text, value, edit.reason))
    return (first(text, root, DATES, edit.entry),)


def _bound_changes(text: str, root: yaml.MappingNode, edit: SetBound) -> tuple[Change, ...]:
    bounds = value_of(root, BOUNDS)
    if bounds is None:
        table = f" [{edit.entry}]" if root.flow_style else f"\n  - {edit.entry}"
        return (behind(text, root, BEFORE, f"{BOUNDS}:{table}"),)
    for item in items_of(bounds):
        there = value_of(item, "requirement")
        if there and _is_pin(there.value, edit.package):
            return (over(text, there, edit.requirement), *_reason_changes(text, item, edit.reason))
    return (first(text, root, BOUNDS, edit.entry),)


def _reason_changes(text: str, mapping: yaml.Node, reason: str) -> tuple[Change, ...]:
    there = value_of(mapping, "reason")
    return (over(text, there, reason),) if reason and there and there.value != reason else ()


def _component(root: yaml.MappingNode, name: str) -> yaml.MappingNode | None:
    for node in items_of(value_of(root, "components")):
        found = value_of(node, "name")
        if isinstance(node, yaml.MappingNode) and found and _same(found.value, name):
            return node
    return None


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
