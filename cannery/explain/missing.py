"""Why a release cannot be had from an index that was asked, and what comes near it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Protocol

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from cannery.catalog.versions import distance
from cannery.lock.wheel_tags import installable, uv_platform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cannery.catalog.compatibility import Compatibility
    from cannery.vocab import Arch

# Nearest releases, platforms and files that a message names.
NEAREST, NAMED = 3, 4
# Days without an upload after which a mirror without a newer release may be behind.
LAG = 60


class Offered(Protocol):
    """A file that an index lists. `uploaded` is an ISO date, "" without one; `yanked` is the reason, or None."""

    @property
    def version(self) -> str:
        """Its version, a valid one."""

    @property
    def file(self) -> str:
        """Its name."""

    @property
    def uploaded(self) -> str:
        """Its date."""

    @property
    def yanked(self) -> str | None:
        """Why it was yanked."""

    @property
    def requires_python(self) -> str:
        """The range of Pythons, "" for any."""


def why_not(files: Sequence[Offered], python: str, arch: Arch, bound: str, *, yanked: bool = False) -> str:
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
        return f"no file for {uv_platform(arch)} and Python {python}; it has {_platforms(kept)}"
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


def _platforms(files: Sequence[Offered]) -> str:
    """Return what the wheels are for: `manylinux_2_28_aarch64 (cp311)`, each once."""
    found: dict[str, list[str]] = {}
    for file in files:
        try:
            tags = parse_wheel_filename(file.file)[3]
        except InvalidWheelFilename:
            continue
        for tag in sorted(tags, key=str):
            found.setdefault(tag.platform, []).append(tag.interpreter)
    words = [f"{platform} ({', '.join(dict.fromkeys(pythons))})" for platform, pythons in found.items()]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def usable(files: Iterable[Offered], python: str, arch: Arch, bound: str) -> tuple[str, ...]:
    """Return the versions that have a file for the target up to the date `bound`, each once."""
    versions: dict[str, list[Offered]] = {}
    for file in files:
        versions.setdefault(file.version, []).append(file)
    return tuple(version for version, mine in versions.items() if not why_not(mine, python, arch, bound))


def near(name: str, pin: str, versions: Iterable[str], table: Compatibility | None) -> str:
    """Return the versions that come nearest to `pin`, in order, with their CANN where the table knows it; "" for none.

    All builds of the nearest release, those first that the table knows; two releases are named at least.
    """
    ordered = sorted(set(versions), key=lambda version: (distance(pin, version), Version(version)))
    nearest = Version(ordered[0]).base_version if ordered else ""
    builds = [version for version in ordered if Version(version).base_version == nearest]
    builds.sort(key=lambda version: not any(_canns(name, version, table)))
    kept = builds[:NEAREST] if len(builds) > 1 else ordered[:2]
    return ", ".join(_with_cann(name, version, table) for version in sorted(kept, key=Version))


def _with_cann(name: str, version: str, table: Compatibility | None) -> str:
    canns = dict.fromkeys(_canns(name, version, table))
    return f"{version} (CANN {' or '.join(canns)})" if canns else version


def _canns(name: str, version: str, table: Compatibility | None) -> Iterator[str]:
    for row in table.rows if table else ():
        if row.name == name and Version(row.version) == Version(version) and "cann" in row.fits:
            yield row.fits["cann"]


def lag(pin: str, files: Sequence[Offered], bound: str) -> str:
    """Say that a mirror may be behind: its newest release is older than `pin` and long before the date `bound`."""
    newest = max(files, key=lambda file: Version(file.version), default=None)
    last = max((file.uploaded for file in files), default="")
    if newest is None or not last or Version(newest.version) >= Version(pin):
        return ""
    if (date.fromisoformat(bound) - date.fromisoformat(last)).days < LAG:
        return ""
    return f"this mirror's newest is {newest.version} of {last}: it may lag"
