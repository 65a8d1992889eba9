"""Ask the index about a package whose releases are in doubt: why none can be had, and what comes near it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cannery.catalog.versions import distance
from cannery.errors import NetworkError
from cannery.explain.conflict import exclude
from cannery.lock.io.bound import index_of
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.lock.io.uv import PROBE
from cannery.lock.wheel_tags import installable, uv_platform
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cannery.explain.conflict import Side
    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.listing import Listed
    from cannery.lock.io.uv import Job
    from cannery.vocab import Arch

# Nearest releases and files that a message names.
NEAREST, NAMED = 2, 3


@dataclass(frozen=True)
class Headline:
    """What is wrong, in one sentence, and what to do; `is_about_one`: about one package that cannot be had."""

    text: str
    hint: str = ""
    is_about_one: bool = False


@dataclass(frozen=True)
class Seen:
    """What the index that serves the package `name` here has of it."""

    name: str
    job: Job
    own: Answer

    @property
    def label(self) -> str:
        """The index, in words."""
        return self.own.place.label

    @property
    def until(self) -> str:
        """The day up to which uploads of the package count."""
        return dict(self.job.request.package_dates).get(self.name, self.job.request.exclude_newer)

    def why_not(self, files: Sequence[Listed], *, is_pinned: bool) -> str:
        """Return why no file of one release counts for the target; "" when one does. A pin takes a yanked one too."""
        request = self.job.request
        return why_not(files, request.python, request.arch, self.until, yanked=is_pinned)

    def usable(self) -> tuple[str, ...]:
        """Return the versions that count for the target."""
        return usable(self.own.files, self.job.request.python, self.job.request.arch, self.until)


def absence(name: str, sides: Sequence[Side], job: Job) -> Headline | None:
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
    seen = _ask(name, job)
    if not seen.own.reached:
        raise NetworkError(f"{name}: {seen.own}", where=job.where)
    is_split = any(exclude(*pair) for pair in combinations(sides, 2))
    groups = [[side] for side in sides if not side.chain] if is_split else [[*sides]]
    return next((found for group in groups if (found := _missing(seen, group))), None)


def releases_at(job: Job) -> Callable[[str, str], bool]:
    """Return a function: whether a release (name, version) can be had for the target.

    Its index is asked when the name first comes; one that is not reached may have anything.
    """
    known: dict[str, Seen] = {}
    sources = {source.name for source in job.request.sources}

    def has(name: str, version: str) -> bool:
        if name in sources:
            return True
        seen = known.get(name) or known.setdefault(name, _ask(name, job))
        wanted = SpecifierSet(f"=={version}", prereleases=True)  # without a local part: every build of it
        files = [file for file in seen.own.files if wanted.contains(file.version)]
        return not seen.own.reached or (bool(files) and not seen.why_not(files, is_pinned=True))

    return has


def _ask(name: str, job: Job) -> Seen:
    bound = index_of(job.request).get(name, DEFAULT_INDEX)
    main = (default_place(job.settings), *extra_places(job.settings))
    places = main if bound == DEFAULT_INDEX else bound_places(bound, job.indexes)
    mine = job.asked.ask([(place, name) for place in places], job.settings, PROBE)
    # The first index that knows a package serves it, whatever the others have.
    first = next((a for a in mine if a.files), next((a for a in mine if a.reached), mine[0]))
    # A main index that fails is the trouble, whatever extra places have.
    return Seen(name, job, mine[0] if bound == DEFAULT_INDEX and not mine[0].reached else first)


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
        hint = f"`exclude_newer_packages` of the profile lets later uploads of {name} count" if late else ""
        return Headline(f"{name} {newest} on {label}: {reasons[newest]}", hint)
    return Headline(_no_release(seen, pin, sides))


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


def why_not(files: Sequence[Listed], python: str, arch: Arch, bound: str, *, yanked: bool = False) -> str:
    """Return why no file of one release counts for the target up to the date `bound`; "" when one does.

    `files` are all files of that release; without any there is no such release, and the text is "" too. With `yanked`
    files that were yanked count: a resolver takes them for an exact pin.
    """
    if not files:
        return ""
    in_time = [file for file in files if not file.uploaded or file.uploaded <= bound]
    if not in_time:
        return f"uploaded {min(file.uploaded for file in files)}, later than the bound {bound}"
    kept = [file for file in in_time if yanked or file.yanked is None]
    if not kept:
        reason = in_time[0].yanked
        return f"yanked from its index{f' ({reason})' if reason else ''}"
    fitting = [file for file in kept if installable(file.file, python, arch)]
    if not fitting:
        more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
        names = ", ".join(file.file for file in kept[:NAMED])
        return f"no file for {uv_platform(arch)} and Python {python}; it has {names}{more}"
    if not any(_takes(file.requires_python, python) for file in fitting):
        return f"asks for Python {fitting[0].requires_python}, the target has {python}"
    return ""


def _takes(wanted: str, python: str) -> bool:
    """Whether a range of Pythons holds the target's, whose last number is not known; uv reads its lower end only."""
    try:
        lower = [part for part in SpecifierSet(wanted) if part.operator in {">=", ">", "==", "~="}]
    except InvalidSpecifier:
        return True
    return all(part.contains(f"{python}.0") or part.contains(f"{python}.99") for part in lower)


def usable(files: Iterable[Listed], python: str, arch: Arch, bound: str) -> tuple[str, ...]:
    """Return the versions that have a file for the target up to the date `bound`, each once."""
    versions: dict[str, list[Listed]] = {}
    for file in files:
        versions.setdefault(file.version, []).append(file)
    return tuple(version for version, mine in versions.items() if not why_not(mine, python, arch, bound))


def near(pin: str, versions: Iterable[str]) -> str:
    """Return the two versions that come nearest to `pin`, in order; "" for none."""
    kept = sorted(set(versions), key=lambda version: (distance(pin, version), Version(version)))[:NEAREST]
    return ", ".join(sorted(kept, key=Version))
