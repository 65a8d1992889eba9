"""What `lock --upgrade` is asked for, and whether an edit of the profile can bring it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.catalog.requirement import package_name
from cannery.errors import UsageError
from cannery.recipe.bounds import TORCH, TORCH_NPU
from cannery.recipe.select import parse_pin
from cannery.vocab import ComponentKind, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.catalog.catalog import Catalog
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
    """The profile to edit: its recipe, all of its Pythons, and the packages of its locks."""

    recipe: Recipe
    catalog: Catalog
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

    def bound(self, name: str) -> str:
        """Return the day up to which uploads of a package count."""
        profile = self.recipe.profile
        days = {canonicalize_name(key): day.date for key, day in profile.exclude_newer_packages.items()}
        return days.get(canonicalize_name(name), profile.exclude_newer)


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
    if chosen and chosen.component.kind is not ComponentKind.WHEELS:
        hint = f"change it there by hand; what it then asks for is in images/components/{chosen.name}.yaml"
        what = f"--upgrade: {name} comes from no package index ({chosen.component.kind})"
        raise UsageError(what, where=subject.file, hint=hint)
    for override in recipe.profile.overrides:
        if package_name(override.requirement) == name:
            what = f"--upgrade: the override {override.requirement} decides about {name}"
            raise UsageError(what, where=subject.file, hint="change or remove it by hand")
    for bound in recipe.held:
        if package_name(bound) == name:
            leader = TORCH_NPU if name == TORCH else TORCH
            what = f"--upgrade: {name} follows {leader} by the compatibility table: {bound}"
            raise UsageError(what, where=subject.file, hint=f"upgrade {leader}, and it moves along")
    return replace(wish, name=name)
