"""`lock --upgrade NAME`: which edits of the profile let a package be newer.

A lock is a function of the profile, so an upgrade is an edit of the profile. A pin moves to a newer release that fits
the table, together with the pins beside it there. What is not pinned gets a later date bound of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.compatibility import CANN
from cannery.catalog.versions import package_name
from cannery.compat.solve import upgrader, with_pins
from cannery.compat.stock import Allowed
from cannery.errors import FindingsError, NetworkError, UsageError
from cannery.lock.request import lock_request
from cannery.recipe.bounds import TORCH, TORCH_NPU
from cannery.recipe.select import parse_pin
from cannery.upgrade.edit import Edit, SetDate, SetVersion
from cannery.vocab import ComponentKind, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.compat.solve import Solver
    from cannery.compat.stock import Stock
    from cannery.recipe.recipe import Chosen, Recipe


@dataclass(frozen=True)
class Upgrade:
    """The edits of the profile, and a line for every wish that needs none."""

    edits: tuple[Edit, ...]
    notes: tuple[str, ...]


def upgrade_edits(subject: Editable, wishes: Sequence[Wish], stock: Stock, today: str) -> Upgrade:
    """Return what to change in the profile so that `wishes`, checked ones, come true.

    Raises `FindingsError` for a version that no index has for every target of the profile, `NetworkError` where that is
    not known since an index was not reached, `UsageError` for two wishes that move one pin to two versions.
    """
    pins: dict[str, str] = {}
    edits: list[Edit] = []
    notes: list[str] = []
    for asked in wishes:
        wish = replace(asked, version=stock.spelt(asked.name, asked.version)) if asked.version else asked
        if wish.version and not stock.has(wish.name, wish.version):
            raise _absent(subject, wish, stock)
        chosen = subject.chosen(wish.name)
        if chosen and chosen.version:
            moved, note = _moved_pins(subject, pins, wish, stock)
            _refuse_clash(wishes, wish, moved)
            pins |= moved
            notes += [note] if note else []
        elif more := tuple(_loosened(subject, wish, chosen, stock, today)):
            edits += more
        else:
            notes.append(f"{wish.name}: uploads up to {subject.bound(wish.name)} count already")
    return Upgrade((*_pin_edits(subject, pins, stock, today), *edits), tuple(notes))


def asked_names(subject: Editable, wishes: Collection[Wish]) -> tuple[str, ...]:
    """Return the packages whose releases have to be known: those of the wishes, and pins that may move with them."""
    solver = upgrader(subject.recipe, subject.catalog)
    pins = [c.package for c in subject.recipe.wheels if c.package in (solver.movable or ())]
    beside = [name for name in pins if solver.known(name)] if any(wish.name in pins for wish in wishes) else []
    return tuple(dict.fromkeys([*(wish.name for wish in wishes), *beside]))


def _absent(subject: Editable, wish: Wish, stock: Stock) -> FindingsError | NetworkError:
    if trouble := stock.trouble.get(wish.name):
        return NetworkError(f"whether there is {wish} is not known: {trouble}", where=subject.file)
    newest = stock.newest(wish.name)
    return FindingsError(
        f"no index has {wish} for every Python and arch of the profile",
        where=subject.file,
        hint=f"the newest release is {newest}" if newest else "",
    )


def _moved_pins(subject: Editable, pins: Mapping[str, str], wish: Wish, stock: Stock) -> tuple[Mapping[str, str], str]:
    """Return the pins to change for a wish about a pinned package, or why none is."""
    recipe = with_pins(subject.recipe, subject.catalog, pins)
    fitting = Allowed(stock, lock_request(recipe))
    solver = upgrader(recipe, subject.catalog, subject.pythons, fitting.has)
    present = solver.subject.versions[wish.name]
    stays = f"{wish.name} stays at {present}"
    if wish.version:
        note = f"{wish.name}: pinned to {present} already" if Version(present) == Version(wish.version) else ""
        return _exact_pins(replace(solver, has=stock.has), wish.name, wish.version), note
    if solver.known(wish.name):
        moved = solver.newest(wish.name)
        reason = f"no row of the table for CANN {recipe.target.cann} that fits the rest is newer"
        return moved, "" if moved else f"{stays}: {reason}"
    latest = fitting.newest_for(wish.name)
    if latest is not None and Version(latest) > Version(Version(present).public):
        return {wish.name: latest}, ""
    if trouble := stock.trouble.get(wish.name):
        raise NetworkError(f"{wish.name}: whether there is a newer one is not known: {trouble}", where=subject.file)
    reason = "no index has a newer one that the rest of the profile allows, for every Python and arch of it"
    return {}, f"{stays}: {reason}"


def _exact_pins(solver: Solver, name: str, version: str) -> Mapping[str, str]:
    """Return the pins to change for one version: those that then fit the whole set, else those that its rows name.

    A release that the table does not know moves alone. The rules judge the new set afterwards.
    """
    if not solver.known(name):
        return {name: version}
    sources = (c.package for c in solver.subject.recipe.sources)
    found = solver.exactly(name, version)
    loose = found if found is not None else replace(solver, ignored=frozenset({CANN, *sources})).exactly(name, version)
    return loose if loose is not None else {name: version}


def _refuse_clash(wishes: Iterable[Wish], cause: Wish, moved: Mapping[str, str]) -> None:
    for wish in wishes:
        if wish.version and Version(moved.get(wish.name, wish.version)) != Version(wish.version):
            raise UsageError(f"--upgrade: {cause} goes with {wish.name} {moved[wish.name]}, not with {wish}")


def _pin_edits(subject: Editable, pins: Mapping[str, str], stock: Stock, today: str) -> Iterator[Edit]:
    for name, version in pins.items():
        chosen = subject.chosen(name)
        if chosen and chosen.version and Version(chosen.version) != Version(version):
            yield SetVersion(chosen.name, version)
            yield from _dated(subject, name, version, stock, today)


def _loosened(subject: Editable, wish: Wish, chosen: Chosen | None, stock: Stock, today: str) -> Iterator[Edit]:
    """Give the edits for a package that is not pinned: a later date, or for an exact version of a component its pin."""
    if wish.version is None and subject.bound(wish.name) < today:
        yield SetDate(wish.name, today)
    elif wish.version and chosen:
        yield SetVersion(chosen.name, wish.version)
        yield from _dated(subject, wish.name, wish.version, stock, today)


def _dated(subject: Editable, name: str, version: str, stock: Stock, today: str) -> Iterator[Edit]:
    """Give a later date bound for a release that came after the present one."""
    if stock.uploaded(name, version) > subject.bound(name):
        yield SetDate(name, today)


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
    if chosen is None and wish.version:
        hint = f'constraints: [{{requirement: "{name}=={wish.version}", reason: …}}], then run lock'
        raise UsageError(f"--upgrade: {name} is no component, to pin it", where=subject.file, hint=f"write {hint}")
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
