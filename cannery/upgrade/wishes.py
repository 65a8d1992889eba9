"""What `lock --upgrade` is asked for, and whether an edit of the profile can bring it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.catalog.requirement import package_name
from cannery.errors import UsageError
from cannery.recipe.bounds import TORCH, TORCH_NPU
from cannery.recipe.select import parse_pin
from cannery.upgrade.edit import line_of
from cannery.vocab import ComponentKind, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.catalog.catalog import Catalog, Later
    from cannery.recipe.recipe import Chosen, Recipe


@dataclass(frozen=True)
class Wish:
    """A package that is to be newer, or at `version` exactly."""

    name: str
    version: str | None

    def __str__(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name


@dataclass(frozen=True)
class Editable:
    """The profile to edit: its recipe and file's text, all of its Pythons, and the packages of its locks."""

    recipe: Recipe
    catalog: Catalog
    text: str
    pythons: tuple[str, ...]
    locked: frozenset[str]

    @property
    def file(self) -> str:
        """The profile's file, for messages."""
        return self.recipe.file

    def chosen(self, name: str) -> Chosen | None:
        """Return the component whose package, or else whose own name, is `name`."""
        by_package = (c for c in self.recipe.chosen if c.package == name)
        return next(by_package, next((c for c in self.recipe.chosen if canonicalize_name(c.name) == name), None))

    def line_of(self, chosen: Chosen) -> int:
        """Return the line of a component in the profile's file."""
        return line_of(self.text, "components", "name", chosen.name)

    def dated(self, name: str) -> Later | None:
        """Return the day that a package has of its own, with the reason; None when the profile's counts."""
        days = self.recipe.profile.exclude_newer_packages
        return next((day for key, day in days.items() if canonicalize_name(key) == name), None)

    def bound(self, name: str) -> str:
        """Return the day up to which uploads of a package count."""
        own = self.dated(name)
        return own.date if own else self.recipe.profile.exclude_newer


def parse_wishes(texts: Iterable[str]) -> tuple[Wish, ...]:
    """Read `NAME` and `NAME==VERSION`; raise `UsageError` for anything else, and for one name at two versions."""
    found: dict[str, Wish] = {}
    for text in texts:
        wish = _parse(text)
        if found.setdefault(wish.name, wish) != wish:
            raise UsageError(f"--upgrade: {wish.name} is named twice, as {found[wish.name]} and {wish}")
    return tuple(found.values())


def _parse(text: str) -> Wish:
    try:
        if "==" in text:
            return Wish(*parse_pin(text))
        name, _version = parse_pin(f"{text}==0")  # a name is what can be pinned
        return Wish(name, None)
    except UsageError as error:
        hint = "for example --upgrade ray or --upgrade ray==2.60.0"
        raise UsageError(f"--upgrade: {text!r} is neither NAME nor NAME==VERSION", hint=hint) from error


def checked_wishes(subject: Editable, wishes: Iterable[Wish]) -> tuple[Wish, ...]:
    """Return `wishes` in the words of packages; raise `UsageError` for what an edit of the profile cannot upgrade."""
    return tuple(_checked(subject, wish) for wish in wishes)


def _checked(subject: Editable, wish: Wish) -> Wish:
    chosen, recipe = subject.chosen(wish.name), subject.recipe
    name = chosen.package if chosen else wish.name
    if chosen is None and name not in subject.locked:
        known = {*subject.locked, *(c.package for c in recipe.wheels)}
        raise UsageError(f"--upgrade: {name} is no package of profile {recipe.name}", hint=did_you_mean(name, known))
    where = f"{subject.file}:{subject.line_of(chosen)}" if chosen else subject.file
    if chosen and chosen.component.kind is ComponentKind.SYSTEM:
        raise UsageError(f"--upgrade: {name} is of the base's distribution, whose mirror decides", where=where)
    if chosen and chosen.component.kind is ComponentKind.ARCHIVE:
        hint = f"change it there by hand, to a version that images/components/{chosen.name}.yaml knows"
        raise UsageError(f"--upgrade: {name} is built from a tarball and pinned to it", where=where, hint=hint)
    if chosen and chosen.component.kind.is_source:
        pin = f"commit {chosen.commit}" if chosen.commit else f"release {chosen.release}"
        hint = f"change it there by hand; what it then asks for is in images/components/{chosen.name}.yaml"
        raise UsageError(f"--upgrade: {name} comes from source and is pinned to {pin}", where=where, hint=hint)
    for override in recipe.profile.overrides:
        if package_name(override.requirement) == name:
            what = f"--upgrade: the override {override.requirement} decides about {name}"
            line = line_of(subject.text, "overrides", "requirement", override.requirement)
            raise UsageError(what, where=f"{subject.file}:{line}", hint="change or remove it by hand")
    for bound in recipe.held:
        if package_name(bound) == name:
            followed = _followed(subject, name)
            what = f"--upgrade: {name} follows {followed.package} by the compatibility table: {bound}"
            where = f"{subject.file}:{subject.line_of(followed)}"
            raise UsageError(what, where=where, hint=f"upgrade {followed.package}, and it moves along")
    return replace(wish, name=name)


def _followed(subject: Editable, name: str) -> Chosen:
    """Return the pin that a bound of the table follows: torch's is torch_npu, all else's torch where it is pinned."""
    order = (TORCH_NPU,) if name == TORCH else (TORCH, TORCH_NPU)
    return next(one for other in order for one in subject.recipe.chosen if one.package == other and one.version)
