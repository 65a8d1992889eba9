"""Which releases of a recipe's packages the indexes have for its targets and bounds; which are newer than a lock."""

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
    # Resolves a request. Raises `FindingsError` where no set works, `NetworkError` where an index fails.
    Resolve = Callable[[LockRequest], Lock]

# After every upload: for a resolution without a date bound.
NO_BOUND = "2999-12-31"


@dataclass(frozen=True)
class Stock:
    """The newest release of each package, and those with files for every target, with and without their local part.

    `bounds` are the ranges that versions have to be in. `trouble` is why an index of a package could not be asked: such
    an index may have anything, so `has` is true of its packages, as of those that were not asked for. The resolver
    decides about them. `lost` has each index that was not reached, with the reason, also where another place has its
    packages.
    """

    newest: Mapping[str, str]
    fitting: Mapping[str, frozenset[Version]]
    trouble: Mapping[str, str]
    bounds: Mapping[str, SpecifierSet] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    def has(self, name: str, version: str) -> bool:
        """Whether there is an allowed release for every target; its local part counts when `version` has one."""
        is_there = name in self.trouble or name not in self.fitting or Version(version) in self.fitting[name]
        return is_there and self._allows(name, Version(version))

    def newest_for(self, name: str) -> str | None:
        """Return the newest allowed final release that has files for every target, without its local part."""
        versions = {Version(found.public) for found in self.fitting.get(name, ()) if not found.is_prerelease}
        return next((str(found) for found in sorted(versions, reverse=True) if self._allows(name, found)), None)

    def _allows(self, name: str, version: Version) -> bool:
        return name not in self.bounds or self.bounds[name].contains(version.public, prereleases=True)


def bounds_of(request: LockRequest) -> dict[str, SpecifierSet]:
    """Return name → the versions that the overrides of a request allow, or its constraints and sources.

    What wheels ask for would have to be fetched: the resolver finds it out.
    """
    overridden = {package_name(text) for text in request.overrides}
    texts = [*request.constraints, *(text for source in request.sources for text in source.requires)]
    texts = [*request.overrides, *(text for text in texts if package_name(text) not in overridden)]
    found: dict[str, SpecifierSet] = {}
    for requirement in live(texts, marker_environment(request.python, request.arch)):
        found[requirement.package] = found.get(requirement.package, SpecifierSet()) & requirement.specifier
    return found


def questions_of(recipe: Recipe) -> list[tuple[str, str]]:
    """Return (package, index) of the wheels of a recipe, for each index that may serve one version or another."""
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
    """Ask for each (package, index name), all at once; an index that is not reached is a part of the answer.

    Of the default index: the host's main index, and where that has nothing of the package its extra places; of another
    one its own places and the host's extra ones, as for a lock.
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
        # Without its local part; a final one where there is any.
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
    """Whether a file can be installed for the target, as it is or after a build; without a range, for any Python."""
    try:
        wanted = SpecifierSet(file.requires_python)
    except InvalidSpecifier:
        wanted = SpecifierSet()
    takes = any(wanted.contains(f"{python}.{patch}") for patch in (0, 20))
    return takes and (not file.file.endswith(".whl") or wheel_rank(file.file, python, arch) is not None)


@dataclass(frozen=True)
class Outdated:
    """A component of the profile: its version in the lock, the newest that fits with the others, and the newest at all.

    Versions are without their local part; "" is not there, or not known. Without `resolved`, `fits` is what the table
    allows, and the resolver could not be asked.
    """

    name: str
    locked: str
    fits: str
    newest: str
    resolved: bool = True

    @property
    def is_newer(self) -> bool:
        """Whether a newer one fits."""
        return bool(self.resolved and self.locked and self.fits) and Version(self.fits) > Version(self.locked)

    @property
    def is_held(self) -> bool:
        """Whether the newest one does not fit."""
        return bool(self.newest and self.fits) and Version(self.newest) > Version(self.fits)


@dataclass(frozen=True)
class Newer:
    """The newest set that was resolved (name → version), the moves that could not be tried, and why."""

    found: Mapping[str, str]
    untried: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


def look(
    settings: PipSettings, catalog: Catalog, recipe: Recipe, lock: Lock, resolve: Resolve
) -> tuple[tuple[Outdated, ...], tuple[str, ...], str]:
    """Compare `lock`, the current one of `recipe`, with what the indexes have.

    Also return the indexes that were not reached, and why moves of the table could not be tried. What the table has
    moves to a set of it that has files for all targets of the profile; the resolver moves the rest, for the recipe's
    own target. Of a source an index shows what its newest release is. Raises `NetworkError` where no index answers, and
    what `resolve` raises beside `FindingsError` and `NetworkError`.
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
    """Return name → the range in which the resolver may move a wheel: from the locked version to the newest one.

    A wheel without a pin, or with one that the table has nothing about.
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
    """Return the newest set with the pins of `moves`, else one without them: where no set has them, they do not fit.

    `made` resolves a set with such pins; it raises `FindingsError` where none works, `NetworkError` where an index
    fails.
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
    """Return the request for the pins of `moves`, without a date bound; what `ranges` has is not pinned."""
    versions = {chosen.package: chosen.version for chosen in recipe.chosen} | dict.fromkeys(ranges) | {**moves}
    chosen = tuple(replace(one, version=versions[one.package]) for one in recipe.chosen)
    held = (*held_bounds(chosen, catalog.compatibility), *ranges.values())
    profile = recipe.profile.model_copy(update={"exclude_newer": NO_BOUND, "exclude_newer_packages": {}})
    return lock_request(replace(recipe, profile=profile, chosen=chosen, held=held))


def upgrade_targets(recipe: Recipe) -> tuple[tuple[str, Arch], ...]:
    """Return each (Python, arch) that an upgrade has to fit: the profile's, or a target that is none of them."""
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
    """Return the version that a lock has of a package, without its local part; "" where it has none."""
    return next((public(package.version) for package in lock.packages if package.name == name), "")


def table(packages: Sequence[Outdated]) -> tuple[str, ...]:
    """Return the lines of a table, with its head; "?" is behind a version that was not resolved."""
    rows = [("package", "locked", "fits", "newest")]
    rows += [(p.name, p.locked or "-", (p.fits or "-") + "?" * (not p.resolved), p.newest or "-") for p in packages]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    return tuple("  ".join(row).rstrip() for row in cells)


def legend(packages: Iterable[Outdated], why: str) -> Iterator[str]:
    """Give a line for each mark of `table`; `why` is why moves could not be tried, "" where all were."""
    if any(not one.resolved for one in packages):
        yield f"? = fits images/compatibility.yaml, and was not resolved: {why}"
    if any(not one.fits for one in packages):
        yield f"- under fits = not resolved: {why or 'a source stays at the version of the profile'}"


def public(version: str) -> str:
    """Return a version without its local part; "" stays ""."""
    return Version(version).public if version else ""
