"""What the indexes have of a recipe's packages, as far as it counts for the targets and bounds of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.target import live, marker_environment, package_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.lock.request import LockRequest


@dataclass(frozen=True)
class Stock:
    """The newest release of each package, and those with files for every target, with and without their local part.

    `bounds` are ranges that other versions are left out by. `trouble` is why an index of a package could not be asked.
    It may have anything, so `has` is true of such a package, and of one that was not asked for: the resolver decides.
    """

    newest: Mapping[str, str]
    fitting: Mapping[str, frozenset[Version]]
    trouble: Mapping[str, str]
    bounds: Mapping[str, SpecifierSet] = field(default_factory=dict)

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
    for wanted in live(texts, marker_environment(request.python, request.arch)):
        name = canonicalize_name(wanted.name)
        found[name] = found.get(name, SpecifierSet()) & wanted.specifier
    return found
