"""Ask the indexes about a package whose releases are in doubt: what is there of it, since when, and where else."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.errors import NetworkError
from cannery.explain.conflict import exclude
from cannery.explain.missing import near, usable, why_not
from cannery.lock.io.bound import index_of
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.lock.io.uv import PROBE
from cannery.recipe.recipe import package_of
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.explain.conflict import Side
    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.listing import Listed
    from cannery.lock.io.uv import Job


@dataclass(frozen=True)
class Headline:
    """What is wrong, in one sentence, and what to do.

    `is_about_one` package that cannot be had; `is_elsewhere`: another index may have just what is asked for.
    """

    text: str
    hint: str = ""
    is_about_one: bool = False
    is_elsewhere: bool = False


@dataclass(frozen=True)
class Seen:
    """What indexes have of the package `name`: the one that serves it here, and the others that are known."""

    name: str
    job: Job
    catalog: Catalog | None
    own: Answer
    others: tuple[Answer, ...]

    @property
    def label(self) -> str:
        """The index that serves the package here, in words."""
        return self.own.place.label

    @property
    def until(self) -> str:
        """The day up to which uploads of the package count."""
        return dict(self.job.request.package_dates).get(self.name, self.job.request.exclude_newer)

    def why_not(self, files: Sequence[Listed], *, is_pinned: bool) -> str:
        """Return why no file of one release counts for the target; "" when one does. A pin takes a yanked one too."""
        request = self.job.request
        return why_not(files, request.python, request.arch, self.until, yanked=is_pinned)

    def of(self, answer: Answer, version: str) -> list[Listed]:
        """Return the files of a version that an index has; of a version without a local part every build of it."""
        wanted = SpecifierSet(f"=={version}" if version else "", prereleases=True)
        return [file for file in answer.files if wanted.contains(file.version)]

    def usable(self) -> tuple[str, ...]:
        """Return the versions that count for the target."""
        return usable(self.own.files, self.job.request.python, self.job.request.arch, self.until)


def absence(name: str, sides: Sequence[Side], job: Job, catalog: Catalog | None) -> Headline | None:
    """Return what keeps every release that `sides` take from being used; None when one can be.

    Sides that exclude each other are looked at one by one. Raises `NetworkError` when the package's own index fails at
    its page.
    """
    source = next((source for source in job.request.sources if source.name == name), None)
    if source is not None:
        python = job.request.python
        takes = SpecifierSet(source.requires_python)
        is_for = takes.contains(f"{python}.0") or takes.contains(f"{python}.99")
        text = f"{name} {source.version} asks for Python {source.requires_python}, the target has {python}"
        return None if is_for else Headline(text)
    seen = _ask(name, job, catalog)
    if not seen.own.reached:
        raise NetworkError(f"{name}: {seen.own}", where=job.where)
    is_split = any(exclude(*pair) for pair in combinations(sides, 2))
    groups = [[side] for side in sides if not side.chain] if is_split else [[*sides]]
    return next((found for group in groups if (found := _missing(seen, group))), None)


def releases_at(job: Job, catalog: Catalog | None) -> Callable[[str, str], bool]:
    """Return a function: whether a release (name, version) can be had for the target.

    Its index is asked when the name first comes; one that is not reached may have anything.
    """
    known: dict[str, Seen] = {}
    sources = {source.name for source in job.request.sources}

    def has(name: str, version: str) -> bool:
        if name in sources:
            return True
        seen = known.get(name) or known.setdefault(name, _ask(name, job, catalog))
        files = seen.of(seen.own, version)
        return not seen.own.reached or (bool(files) and not seen.why_not(files, is_pinned=True))

    return has


def _ask(name: str, job: Job, catalog: Catalog | None) -> Seen:
    bound = index_of(job.request).get(name, DEFAULT_INDEX)
    main, extras = default_place(job.settings), extra_places(job.settings)
    own = (main, *extras) if bound == DEFAULT_INDEX else bound_places(bound, job.indexes)
    other = [] if bound == DEFAULT_INDEX else [main]
    other += [place for index in job.indexes if index != bound for place in bound_places(index, job.indexes)]
    places = [*own, *other]
    answers = job.asked.ask([(place, name) for place in places], job.settings, PROBE)
    mine = answers[: len(own)]
    # The first index that knows a package serves it, whatever the others have.
    first = next((a for a in mine if a.files), next((a for a in mine if a.reached), mine[0]))
    # A main index that fails is the trouble, whatever extra places have.
    first = mine[0] if bound == DEFAULT_INDEX and not mine[0].reached else first
    return Seen(name, job, catalog, first, tuple(answer for answer in answers if answer is not first))


def _missing(seen: Seen, sides: Sequence[Side]) -> Headline | None:
    name, label, pin = seen.name, seen.label, _pin(sides)
    taken = [file for file in seen.own.files if all(side.takes(file.version) for side in sides)]
    by_version: dict[Version, list[Listed]] = {}
    for file in taken:
        by_version.setdefault(Version(file.version), []).append(file)
    reasons = {version: seen.why_not(files, is_pinned=bool(pin)) for version, files in by_version.items()}
    if not all(reasons.values()):
        return None
    if reasons:
        newest = max(reasons)
        late = reasons[newest].startswith("uploaded")
        wish = f"{name}=={newest}" if pin else name
        profile = seen.job.request.profile
        hint = f"`build.py lock {profile} --upgrade {wish}` lets its later uploads count" if late else ""
        return Headline(f"{name} {newest} on {label}: {reasons[newest]}", hint)
    elsewhere = _elsewhere(seen, pin) if pin or not seen.own.files else None
    return elsewhere or Headline(_no_release(seen, pin, sides))


def _pin(sides: Sequence[Side]) -> str:
    """Return the exact version that is asked for, "" where a range is."""
    texts = [text for side in sides for text in side.wanted] or [""]
    exact = {text.removeprefix("==") for text in texts if text.startswith("==") and "," not in text and "*" not in text}
    return exact.pop() if len(exact) == 1 and all(text.startswith("==") for text in texts) else ""


def _no_release(seen: Seen, pin: str, sides: Sequence[Side]) -> str:
    """Return that an index has no release of a kind, with what comes near it."""
    name, files = seen.name, seen.own.files
    if not files:
        return f"{name} {pin}: {name} was not found on {seen.label}" if pin else f"{name} was not found on {seen.label}"
    if not pin:
        wanted = " and ".join(dict.fromkeys(" or ".join(side.wanted) for side in sides))
        newest = max(seen.usable(), key=Version, default="")
        return f"{name} {wanted} on {seen.label}: no such release" + (f", the newest is {newest}" if newest else "")
    nearest = near(pin, seen.usable())
    return f"{name} {pin} on {seen.label}: no such release" + (f", nearest {nearest}" if nearest else "")


def _elsewhere(seen: Seen, pin: str) -> Headline | None:
    """Return which other index has the release, or may have it and was not reached."""
    name, job = seen.name, seen.job
    what = f"{name} {pin}".rstrip()
    for answer in seen.others:
        has = seen.of(answer, pin)
        if has and not seen.why_not(has, is_pinned=bool(pin)):
            where = str(answer.place) if answer.place.index == DEFAULT_INDEX else answer.place.label
            return Headline(f"{what} is not on {seen.label}; {where} has it: {_bind(seen, answer)}", is_elsewhere=True)
    for answer in seen.others:
        index = job.indexes.get(answer.place.index)
        if index and not answer.reached and name in {canonicalize_name(served) for served in index.serves}:
            there = f"it may be on {answer.place.label}, which serves {name} and was not reached ({answer.state})"
            hint = f"lock on a host that reaches it, with {_entry(seen, answer.place.index)}"
            return Headline(f"{what} is not on {seen.label}; {there}", hint, is_elsewhere=True)
    return None


def _bind(seen: Seen, answer: Answer) -> str:
    """Return what to write so that the package comes from there."""
    if answer.place.index != DEFAULT_INDEX:
        return f"bind it with {_entry(seen, answer.place.index)}"
    own = index_of(seen.job.request).get(seen.name)
    if own is not None:
        return f"take `index: {own}` out of {_file(seen)}"
    return f"{seen.label} knows the package, so its versions alone count; make it the main index for locking"


def _entry(seen: Seen, index: str) -> str:
    return f"`index: {index}` in {_file(seen)}"


def _file(seen: Seen) -> str:
    components = seen.catalog.components if seen.catalog else {}
    found = (key for key, one in components.items() if package_of(key, one) == seen.name)
    return f"images/components/{next(found, seen.name)}.yaml"
