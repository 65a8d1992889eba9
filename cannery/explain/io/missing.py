"""Ask the indexes about a package that cannot be had: what is there of it, since when, and where else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from cannery.errors import NetworkError
from cannery.explain.conflict import headline
from cannery.explain.derivation import FactKind
from cannery.explain.missing import lag, near, usable, why_not
from cannery.lock.io.bound import index_of
from cannery.lock.io.listing import direct_file
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.lock.io.uv import PROBE
from cannery.recipe.recipe import package_of
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.explain.conflict import Conflict
    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.listing import Listed
    from cannery.lock.io.places import Place
    from cannery.lock.io.uv import Job


@dataclass(frozen=True)
class Headline:
    """What is wrong, in one sentence, and what to do. `is_elsewhere`: another index may have just what is asked for."""

    text: str
    hint: str = ""
    is_elsewhere: bool = False


@dataclass(frozen=True)
class Seen:
    """What indexes say of one package: the one that serves it here, and the others that are known."""

    own: Answer
    others: tuple[Answer, ...]


def absence(conflict: Conflict, job: Job, catalog: Catalog | None) -> Headline:
    """Say what is wrong with the conflict's package; only where something is missing the indexes are asked.

    Raises `NetworkError` when the package's own index fails at its page.
    """
    if not conflict.facts or conflict.name in {source.name for source in job.request.sources}:
        return Headline(headline(conflict))
    seen = _ask(conflict.name, job)
    if not seen.own.reached:
        raise NetworkError(f"{conflict.name}: {seen.own}", where=job.where)
    pin = _pin(conflict)
    found = _pinned(conflict.name, pin, seen, job, catalog) if pin else _ranged(conflict, seen, job, catalog)
    return found or Headline(headline(conflict))


def _ask(name: str, job: Job) -> Seen:
    bound = index_of(job.request).get(name, DEFAULT_INDEX)
    main, extras = default_place(job.settings), extra_places(job.settings)
    own = (main, *extras) if bound == DEFAULT_INDEX else bound_places(bound, job.indexes)
    other = [] if bound == DEFAULT_INDEX else [main]
    other += [place for index in job.indexes if index != bound for place in bound_places(index, job.indexes)]
    places = [*own, *(place for place in other if _may_have(place, name))]
    answers = job.asked.ask([(place, name) for place in places], job.settings, PROBE)
    mine = answers[: len(own)]
    # The first index that knows a package serves it, whatever stands behind it.
    first = next((a for a in mine if a.files), next((a for a in mine if a.reached), mine[0]))
    # The main index alone is told apart from extra places: these are looked at like other indexes.
    first = mine[0] if bound == DEFAULT_INDEX and not mine[0].reached else first
    return Seen(first, tuple(answer for answer in answers if answer is not first))


def _may_have(place: Place, name: str) -> bool:
    file = direct_file(place)
    return not file or parse_wheel_filename(file)[0] == name


def _pin(conflict: Conflict) -> str:
    """Return the exact version that is asked for and not to be had, "" where a range is."""
    texts = [text for side in conflict.sides for text in side.wanted] or [""]
    exact = {text.removeprefix("==") for text in texts if text.startswith("==") and "," not in text and "*" not in text}
    return exact.pop() if len(exact) == 1 and all(text.startswith("==") for text in texts) else ""


def _bound_of(name: str, job: Job) -> str:
    return dict(job.request.package_dates).get(name, job.request.exclude_newer)


def _pinned(name: str, pin: str, seen: Seen, job: Job, catalog: Catalog | None) -> Headline | None:
    request, label = job.request, seen.own.place.label
    until = _bound_of(name, job)
    same = _of_version(seen.own.files, pin)
    if same:
        reason = why_not(same, request.python, request.arch, until)
        return Headline(f"{name} {pin} on {label}: {reason}") if reason else None
    elsewhere = _elsewhere(name, pin, seen, job, catalog)
    if elsewhere:
        return elsewhere
    table = catalog.compatibility if catalog else None
    versions = usable(seen.own.files, request.python, request.arch, until)
    if not versions and not seen.own.files:
        return Headline(f"{name} {pin}: {name} was not found on {label}")
    nearest = near(name, pin, versions, table)
    words = [f"{name} {pin} on {label}: no such release", *([f"nearest {nearest}"] if nearest else [])]
    behind = lag(pin, seen.own.files, until)
    return Headline(", ".join(words) + (f"; {behind}" if behind else ""))


def _of_version(files: Sequence[Listed], pin: str) -> list[Listed]:
    """The files of a release; without a local part every build of it, as for a resolver."""
    wanted = Version(pin)
    return [f for f in files if Version(f.version) == wanted or (not wanted.local and _base(f.version) == wanted)]


def _base(version: str) -> Version:
    return Version(Version(version).public)


def _elsewhere(name: str, pin: str, seen: Seen, job: Job, catalog: Catalog | None) -> Headline | None:
    """Say which other index has the release, or may have it and was not reached."""
    what = f"{name} {pin}".rstrip()
    label = seen.own.place.label
    for answer in seen.others:
        has = _of_version(answer.files, pin) if pin else answer.files
        if has and not why_not(has, job.request.python, job.request.arch, _bound_of(name, job)):
            text = f"{what} is not on {label}; {_word(answer)} has it: {_bind(name, answer, seen, job, catalog)}"
            return Headline(text, is_elsewhere=True)
    for answer in seen.others:
        index = job.indexes.get(answer.place.index)
        if index and not answer.reached and name in {canonicalize_name(served) for served in index.serves}:
            text = (
                f"{what} is not on {label}; it may be on {answer.place.label}, which serves {name} and was not reached"
            )
            hint = f"lock on a host that reaches it, with {_entry(name, answer.place.index, catalog)}"
            return Headline(f"{text} ({answer.state})", hint, is_elsewhere=True)
    return None


def _word(answer: Answer) -> str:
    return str(answer.place) if answer.place.index == DEFAULT_INDEX else answer.place.label


def _bind(name: str, answer: Answer, seen: Seen, job: Job, catalog: Catalog | None) -> str:
    """What to write so that the package comes from there."""
    if answer.place.index != DEFAULT_INDEX:
        return f"bind it with {_entry(name, answer.place.index, catalog)}"
    own = index_of(job.request).get(name)
    if own is not None:
        return f"take `index: {own}` out of {_file(name, catalog)}"
    return f"{seen.own.place.label} knows the package, so its versions alone count; make it the main index for locking"


def _entry(name: str, index: str, catalog: Catalog | None) -> str:
    return f"`index: {index}` in {_file(name, catalog)}"


def _file(name: str, catalog: Catalog | None) -> str:
    components = catalog.components if catalog else {}
    found = (key for key, one in components.items() if package_of(key, one) == name)
    return f"images/components/{next(found, name)}.yaml"


def _ranged(conflict: Conflict, seen: Seen, job: Job, catalog: Catalog | None) -> Headline | None:
    """A range is asked for: what keeps the newest release in it from being taken."""
    name, label, files = conflict.name, seen.own.place.label, seen.own.files
    wanted = [file for file in files if _wanted(file.version, conflict)]
    request = job.request
    if wanted:
        newest = max(Version(file.version) for file in wanted)
        same = [file for file in wanted if Version(file.version) == newest]
        reason = why_not(same, request.python, request.arch, _bound_of(name, job))
        is_only = {fact.kind for fact in conflict.facts} == {FactKind.ONLY}
        rest = f"; else there is only {name} {' or '.join(conflict.facts[0].versions)}" if is_only else ""
        return Headline(f"{name} {newest} on {label}: {reason}{rest}") if reason else None
    elsewhere = _elsewhere(name, "", seen, job, catalog) if not files else None
    if elsewhere:
        return elsewhere
    return Headline(f"{name} was not found on {label}") if not files else None


def _wanted(version: str, conflict: Conflict) -> bool:
    try:
        return any(
            SpecifierSet(text).contains(version, prereleases=True) for side in conflict.sides for text in side.wanted
        )
    except InvalidSpecifier:
        return False
