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

from cannery.core.catalog import Later, Profile, Reasoned
from cannery.core.errors import UsageError
from cannery.core.yaml_edit import Change, behind, compose, first, items_of, key_text, over, quoted, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

DATES, BOUNDS = "exclude_newer_packages", "constraints"
# A new table of either kind stands behind this key, which every profile has.
BEFORE = "exclude_newer"


@dataclass(frozen=True)
class SetVersion:
    """Pin a component to a version."""

    component: str
    version: str

    def __str__(self) -> str:
        return f"version: {quoted(self.version)} of component {self.component}"


@dataclass(frozen=True)
class SetDate:
    """Let a package's uploads count up to `date`. A reason that is there already stays."""

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
    """Hold a package at one version by a constraint."""

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
        change = _change(text, edit)
        changed, wanted = change.made_in(text), edit_model(profile, (edit,))
        if _parsed(changed) != wanted:
            raise UsageError(
                "the file is written in a way that cannot be edited without changing more than was asked",
                where=f"{where}:{change.line}",
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


def component_line(text: str, name: str) -> int:
    """Return the 1-based line of the component `name` in a profile's text; 1 when it is not there."""
    node = _component(compose(text), name)
    return node.start_mark.line + 1 if node else 1


def _pins(profile: Profile, edit: SetVersion) -> tuple[object, ...]:
    update = {"version": edit.version}
    return tuple(
        pin.model_copy(update=update) if _same(pin.name, edit.component) else pin for pin in profile.components
    )


def _dates(profile: Profile, edit: SetDate) -> dict[str, Later]:
    dates = dict(profile.exclude_newer_packages)
    key = next((name for name in dates if _same(name, edit.package)), edit.package)
    return {**dates, key: Later(date=edit.date, reason=dates[key].reason if key in dates else edit.reason)}


def _bounds(bounds: tuple[Reasoned, ...], edit: SetBound) -> tuple[Reasoned, ...]:
    at = next((number for number, bound in enumerate(bounds) if _is_pin(bound.requirement, edit.package)), None)
    if at is None:
        return (Reasoned(requirement=edit.requirement, reason=edit.reason), *bounds)
    return (*bounds[:at], bounds[at].model_copy(update={"requirement": edit.requirement}), *bounds[at + 1 :])


def _change(text: str, edit: Edit) -> Change:
    root = compose(text)
    match edit:
        case SetVersion():
            return _version_change(text, root, edit)
        case SetDate():
            return _date_change(text, root, edit)
        case SetBound():
            return _bound_change(text, root, edit)


def _version_change(text: str, root: yaml.MappingNode, edit: SetVersion) -> Change:
    node = _component(root, edit.component)
    if node is None:
        raise ValueError(f"{edit.component} is no component of this profile")
    there = value_of(node, "version")
    return over(there, edit.version) if there else behind(text, node, "name", f"version: {quoted(edit.version)}")


def _date_change(text: str, root: yaml.MappingNode, edit: SetDate) -> Change:
    dates = value_of(root, DATES)
    if dates is None:
        table = f" {{{edit.entry}}}" if root.flow_style else f"\n  {edit.entry}"
        return behind(text, root, BEFORE, f"{DATES}:{table}")
    for key, value in dates.value:
        if _same(key.value, edit.package):
            return over(value_of(value, "date") or value, edit.date)
    return first(text, root, DATES, edit.entry)


def _bound_change(text: str, root: yaml.MappingNode, edit: SetBound) -> Change:
    bounds = value_of(root, BOUNDS)
    if bounds is None:
        table = f" [{edit.entry}]" if root.flow_style else f"\n  - {edit.entry}"
        return behind(text, root, BEFORE, f"{BOUNDS}:{table}")
    for item in items_of(bounds):
        there = value_of(item, "requirement")
        if there and _is_pin(there.value, edit.package):
            return over(there, edit.requirement)
    return first(text, root, BOUNDS, edit.entry)


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
