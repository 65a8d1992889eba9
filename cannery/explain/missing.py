"""Why a release cannot be had from an index that was asked, and what comes near it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cannery.catalog.versions import distance
from cannery.lock.wheel_tags import installable, uv_platform

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cannery.vocab import Arch

# Nearest releases and files that a message names.
NEAREST, NAMED = 2, 3


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


def usable(files: Iterable[Offered], python: str, arch: Arch, bound: str) -> tuple[str, ...]:
    """Return the versions that have a file for the target up to the date `bound`, each once."""
    versions: dict[str, list[Offered]] = {}
    for file in files:
        versions.setdefault(file.version, []).append(file)
    return tuple(version for version, mine in versions.items() if not why_not(mine, python, arch, bound))


def near(pin: str, versions: Iterable[str]) -> str:
    """Return the two versions that come nearest to `pin`, in order; "" for none."""
    kept = sorted(set(versions), key=lambda version: (distance(pin, version), Version(version)))[:NEAREST]
    return ", ".join(sorted(kept, key=Version))
