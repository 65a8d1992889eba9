"""Finds the releases of packages on the indexes, and which of them are newer than a lock and fit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cannery.catalog.target import live, marker_environment, package_name
from cannery.compat.solve import newest_pins, upgrader
from cannery.errors import FindingsError, NetworkError
from cannery.lock.io.indexes import ask_all, bound_places, default_place, extra_places
from cannery.lock.lock import wheel_rank
from cannery.lock.request import lock_request
from cannery.recipe.select import held_bounds
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.addresses import Index
    from cannery.catalog.catalog import Catalog
    from cannery.compat.solve import Solver
    from cannery.lock.io.indexes import Answer, Listed, Place
    from cannery.lock.lock import Lock
    from cannery.lock.request import LockRequest
    from cannery.recipe.recipe import Recipe
    from cannery.util.io.pip_settings import PipSettings
    from cannery.vocab import Arch

    Ask = Callable[[Sequence[tuple[Place, str]]], Sequence[Answer]]
    # Resolves a request. Raises `FindingsError` if no set works, `NetworkError` if an index fails.
    Resolve = Callable[[LockRequest], Lock]

# After every upload: for a resolution without a date bound.
NO_BOUND = "2999-12-31"


@dataclass(frozen=True)
class Stock:
    """The releases of packages on the indexes, by normalised name.

    - `newest`: the newest release
    - `fitting`: the releases with files for every target, with and without their local part
    - `bounds`: the range that versions must be in
    - `trouble`: why an index of the package was not reached. It may have any release, so `has` is true for the package.
      The resolver decides.
    - `lost`: each index that was not reached, with the reason, even if another place has its packages
    """

    newest: Mapping[str, str]
    fitting: Mapping[str, frozenset[Version]]
    trouble: Mapping[str, str]
    bounds: Mapping[str, SpecifierSet] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    def has(self, name: str, version: str) -> bool:
        """Whether every target can have a release. The local part counts if `version` has one."""
        is_there = name in self.trouble or name not in self.fitting or Version(version) in self.fitting[name]
        return is_there and self._allows(name, Version(version))

    def newest_for(self, name: str) -> str | None:
        """Return the newest allowed final release that has files for every target, without its local part."""
        versions = {Version(found.public) for found in self.fitting.get(name, ()) if not found.is_prerelease}
        return next((str(found) for found in sorted(versions, reverse=True) if self._allows(name, found)), None)

    def _allows(self, name: str, version: Version) -> bool:
        return name not in self.bounds or self.bounds[name].contains(version.public, prereleases=True)


def bounds_of(request: LockRequest) -> dict[str, SpecifierSet]:
    """Return name → the versions that a request allows: by its overrides, else by its constraints and sources.

    Requirements of wheels are not included, because reading them takes downloads. The resolver checks them.
    """
    overridden = {package_name(text) for text in request.overrides}
    texts = [*request.constraints, *(text for source in request.sources for text in source.requires)]
    texts = [*request.overrides, *(text for text in texts if package_name(text) not in overridden)]
    found: dict[str, SpecifierSet] = {}
    for requirement in live(texts, marker_environment(request.python, request.arch)):
        found[requirement.package] = found.get(requirement.package, SpecifierSet()) & requirement.specifier
    return found


def questions_of(recipe: Recipe) -> list[tuple[str, str]]:
    """Return (package, index) for the wheels of a recipe, with each index that may have some version of the package."""
    found: list[tuple[str, str]] = []
    for chosen in recipe.wheels:
        component = chosen.component
        found += [(chosen.package, component.index)] if component.index else []
        if component.index is None or component.index_except:
            found.append((chosen.package, DEFAULT_INDEX))
    return found


def ask_stock(
    questions: Sequence[tuple[str, str]],
    indexes: Mapping[str, Index],
    settings: PipSettings,
    targets: Iterable[tuple[str, Arch]],
    ask: Ask,
) -> Stock:
    """Ask the indexes for each (package, index name), all at once. An index that is not reached raises no error.

    For the default index, the host's main index is asked, and its extra places if that does not have the package. For
    another index, its own places and the host's extra ones are asked, as for a lock.
    """
    wanted, extras = frozenset(targets), extra_places(settings)
    places = {index: bound_places(index, indexes) for _name, index in questions if index != DEFAULT_INDEX}
    places[DEFAULT_INDEX] = (default_place(settings),)
    asked = [*dict.fromkeys((place, name) for name, index in questions for place in (*places[index], *extras))]
    answers = dict(zip(asked, ask(asked), strict=True))
    files: dict[str, list[Listed]] = {}
    trouble: dict[str, str] = {}
    lost: dict[str, None] = {}
    for name, index in questions:
        own = [answers[place, name] for place in places[index]]
        found = next((listed for answer in own if (listed := _kept(answer))), ())
        if index != DEFAULT_INDEX or not found:
            found += tuple(file for place in extras for file in _kept(answers[place, name]))
        files.setdefault(name, []).extend(found)
        if not any(answer.reached for answer in own):
            lost[str(own[0])] = None
            trouble |= {} if found else {name: str(own[0])}
    newest: dict[str, str] = {}
    for name, every in files.items():
        # Without the local part. A final release, if there is one.
        versions = [Version(Version(file.version).public) for file in every]
        final = [version for version in versions if not version.is_prerelease]
        newest[name] = str(max(final or versions)) if versions else ""
    fitting = {name: _fitting(listed, wanted) for name, listed in files.items()}
    return Stock(newest, fitting, trouble, lost=tuple(lost))


def _kept(answer: Answer) -> tuple[Listed, ...]:
    return tuple(file for file in answer.files if file.yanked is None)


def _fitting(files: Iterable[Listed], targets: frozenset[tuple[str, Arch]]) -> frozenset[Version]:
    found: dict[Version, set[tuple[str, Arch]]] = defaultdict(set)
    for file in files:
        version = Version(file.version)
        for one in (version, Version(version.public)):
            found[one] |= {target for target in targets if _fits(file, *target)}
    return frozenset(version for version, mine in found.items() if targets <= mine)


def _fits(file: Listed, python: str, arch: Arch) -> bool:
    """Whether a file can be installed for the target, as it is or after a build. Without a range, any Python fits."""
    try:
        wanted = SpecifierSet(file.requires_python)
    except InvalidSpecifier:
        wanted = SpecifierSet()
    takes = any(wanted.contains(f"{python}.{patch}") for patch in (0, 20))
    return takes and (not file.file.endswith(".whl") or wheel_rank(file.file, python, arch) is not None)


@dataclass(frozen=True)
class Outdated:
    """A component of the profile: the locked version, the newest that fits with the others, and the newest of all.

    Versions have no local part, and are "" if missing or unknown. If not `resolved`, `fits` comes from the
    compatibility table, because the resolver could not run.
    """

    name: str
    locked: str
    fits: str
    newest: str
    resolved: bool = True

    @property
    def is_newer(self) -> bool:
        """Whether a newer version fits."""
        return bool(self.resolved and self.locked and self.fits) and Version(self.fits) > Version(self.locked)

    @property
    def is_held(self) -> bool:
        """Whether the newest version does not fit."""
        return bool(self.newest and self.fits) and Version(self.newest) > Version(self.fits)


@dataclass(frozen=True)
class Newer:
    """The newest set that was resolved (name → version), and the moves that could not be tried, with the reason."""

    found: Mapping[str, str]
    untried: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


def look(
    settings: PipSettings, catalog: Catalog, recipe: Recipe, lock: Lock, resolve: Resolve
) -> tuple[tuple[Outdated, ...], tuple[str, ...], str]:
    """Compare the current `lock` of `recipe` with the indexes.

    Return a line for each component, the indexes that were not reached, and why moves could not be tried. Packages in
    the compatibility table move to a set of the table that has files for all targets of the profile. The resolver moves
    the others, for the recipe's own target. For a source, only the newest release on an index is looked up. Raises
    `NetworkError` if no index answers, and what `resolve` raises besides `FindingsError` and `NetworkError`.
    """
    targets = upgrade_targets(recipe)
    pythons = tuple(dict.fromkeys(python for python, _arch in targets))
    ask = partial(ask_all, settings=settings, timeout=15.0)  # seconds; a later answer counts as not reached
    released = [(source.package, DEFAULT_INDEX) for source in recipe.sources if source.component.releases]
    stock = ask_stock([*questions_of(recipe), *released], catalog.indexes, settings, targets, ask)
    if stock.lost and not any(stock.newest.values()):
        raise NetworkError("; ".join(stock.lost))
    stock = replace(stock, bounds=bounds_of(lock_request(recipe)))
    solver = upgrader(recipe, catalog, pythons, stock.has)
    ranges = ranges_of(recipe, lock, solver, stock)

    def made(moves: Mapping[str, str]) -> Mapping[str, str]:
        found = resolve(_upgrade(recipe, catalog, moves, ranges))
        return {package.name: package.version for package in found.packages}

    newer = newest_set(newest_pins(solver), made)
    return outdated_packages(recipe, lock, newer, stock), stock.lost, newer.why


def ranges_of(recipe: Recipe, lock: Lock, solver: Solver, stock: Stock) -> Mapping[str, str]:
    """Return name → the range in which the resolver may move a wheel: from the locked version to the newest.

    These are the wheels without a pin, and pinned wheels that the table has no rows for.
    """
    found: dict[str, str] = {}
    for chosen in recipe.wheels:
        name, locked = chosen.package, lock_version(lock, chosen.package)
        latest = stock.newest_for(name)
        is_newer = bool(latest and locked and Version(latest) >= Version(locked))
        if locked and (not chosen.version or (is_newer and name in (solver.movable or ()) and not solver.known(name))):
            found[name] = f"{name}>={locked}" + (f",<={latest}" if is_newer else "")
    return found


def newest_set(moves: Mapping[str, str], made: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Newer:
    """Return the newest set with the pins of `moves`, or without them if no set has them.

    `made` resolves a set with pins. It raises `FindingsError` if no set works, and `NetworkError` if an index fails.
    """
    why = ""
    for tried in (moves, {}) if moves else ({},):
        try:
            found = made(tried)
        except FindingsError:
            continue
        except NetworkError as error:
            why = why or error.what.partition("\n")[0]
            continue
        return Newer(found, moves if why else {}, why)
    return Newer({}, moves, why or "the resolver finds no set, not even the locked one")


def _upgrade(recipe: Recipe, catalog: Catalog, moves: Mapping[str, str], ranges: Mapping[str, str]) -> LockRequest:
    """Return the request with the pins of `moves`, and with `ranges` instead of pins, without a limit on dates."""
    versions = {chosen.package: chosen.version for chosen in recipe.chosen} | dict.fromkeys(ranges) | {**moves}
    chosen = tuple(replace(one, version=versions[one.package]) for one in recipe.chosen)
    held = (*held_bounds(chosen, catalog.compatibility), *ranges.values())
    profile = recipe.profile.model_copy(update={"exclude_newer": NO_BOUND, "exclude_newer_packages": {}})
    return lock_request(replace(recipe, profile=profile, chosen=chosen, held=held))


def upgrade_targets(recipe: Recipe) -> tuple[tuple[str, Arch], ...]:
    """Return each (Python, arch) that an upgrade has to fit: the profile's, or only a target outside them."""
    own, mine = recipe.profile.target, (recipe.target.python, recipe.target.arch)
    every = dict.fromkeys((python, arch) for python in (own.python, *own.pythons) for arch in own.arch)
    return tuple(every) if mine in every else (mine,)


def outdated_packages(recipe: Recipe, lock: Lock, newer: Newer, stock: Stock) -> tuple[Outdated, ...]:
    """Return a line for each wheel and source of the profile."""
    found = []
    for name in (chosen.package for chosen in recipe.wheels):
        locked, fits = lock_version(lock, name), public({**newer.found, **newer.untried}.get(name, ""))
        newest = stock.newest.get(name, "")
        if newest and Version(newest) < Version(fits or locked or newest):
            newest = ""  # the index that has it was not asked
        found.append(Outdated(name, locked, fits, newest, resolved=name not in newer.untried))
    of_sources = (Outdated(c.package, c.version or "", "", stock.newest.get(c.package, "")) for c in recipe.sources)
    return (*found, *of_sources)


def lock_version(lock: Lock, name: str) -> str:
    """Return the version of a package in a lock, without its local part; "" if the lock does not have the package."""
    return next((public(package.version) for package in lock.packages if package.name == name), "")


def table(packages: Sequence[Outdated]) -> tuple[str, ...]:
    """Return the lines of a table with a head. "?" marks a version that was not resolved."""
    rows = [("package", "locked", "fits", "newest")]
    rows += [(p.name, p.locked or "-", (p.fits or "-") + "?" * (not p.resolved), p.newest or "-") for p in packages]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    return tuple("  ".join(row).rstrip() for row in cells)


def legend(packages: Iterable[Outdated], why: str) -> Iterator[str]:
    """Yield a line for each mark in `table`. `why` is why moves could not be tried, or ""."""
    if any(not one.resolved for one in packages):
        yield f"? = fits images/compatibility.yaml, and was not resolved: {why}"
    if any(not one.fits for one in packages):
        yield f"- under fits = not resolved: {why or 'a source stays at the version of the profile'}"


def public(version: str) -> str:
    """Return a version without its local part; "" stays ""."""
    return Version(version).public if version else ""
