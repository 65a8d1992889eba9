"""What the indexes have of a recipe's packages, and the part of it that its constraints and sources allow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.versions import live, marker_environment, package_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.lock.lock import LockRequest
    from cannery.vocab import Arch

    Targets = frozenset[tuple[str, Arch]]


@dataclass(frozen=True)
class Release:
    """A version that an index has, and the (Python, arch) pairs that it has a file for."""

    version: Version
    targets: Targets

    @cached_property
    def public(self) -> Version:
        """The version without its local part."""
        return Version(self.version.public)


@dataclass(frozen=True)
class Stock:
    """The releases of packages by name; `targets` are those that have to fit.

    `trouble` is why an index of a package could not be asked. It may have anything, so `has` is true of such a
    package: the resolver decides.
    """

    releases: Mapping[str, tuple[Release, ...]]
    targets: Targets
    trouble: Mapping[str, str]

    def has(self, name: str, version: str) -> bool:
        """Whether there are files of a release for every target; its local part counts when `version` has one."""
        return name in self.trouble or self._fits(name, version)

    def newest(self, name: str) -> str:
        """Return the newest release, a final one where there is any, without its local part; "" without a release."""
        versions = [release.public for release in self.releases.get(name, ())]
        return str(max([v for v in versions if not v.is_prerelease] or versions)) if versions else ""

    def newest_for(self, name: str, allowed: SpecifierSet) -> str | None:
        """Return the newest allowed final release that has files for every target, without its local part."""
        final = {release.public for release in self.releases.get(name, ()) if not release.version.is_prerelease}
        versions = map(str, sorted(final, reverse=True))
        return next((v for v in versions if allowed.contains(v) and self._fits(name, v)), None)

    def _fits(self, name: str, version: str) -> bool:
        return self.targets <= {target for release in self._of(name, version) for target in release.targets}

    def _of(self, name: str, version: str) -> list[Release]:
        wanted = Version(version)
        return [r for r in self.releases.get(name, ()) if (r.version if wanted.local else r.public) == wanted]


@dataclass(frozen=True)
class Allowed:
    """A stock without what the overrides or constraints of `request` leave out, or its sources, whose wishes are known.

    What wheels ask for would have to be fetched: the resolver finds it out.
    """

    stock: Stock
    request: LockRequest

    def has(self, name: str, version: str) -> bool:
        """Whether there is an allowed release for every target."""
        return self._range(name).contains(Version(version).public, prereleases=True) and self.stock.has(name, version)

    def newest_for(self, name: str) -> str | None:
        """Return the newest allowed release that there is for every target."""
        return self.stock.newest_for(name, self._range(name))

    def _range(self, name: str) -> SpecifierSet:
        return self._ranges.get(name, SpecifierSet())

    @cached_property
    def _ranges(self) -> Mapping[str, SpecifierSet]:
        request = self.request
        overridden = {package_name(text) for text in request.overrides}
        texts = [*request.constraints, *(text for source in request.sources for text in source.requires)]
        texts = [*request.overrides, *(text for text in texts if package_name(text) not in overridden)]
        found: dict[str, SpecifierSet] = {}
        for wanted in live(texts, marker_environment(request.python, request.arch)):
            name = canonicalize_name(wanted.name)
            found[name] = found.get(name, SpecifierSet()) & wanted.specifier
        return found
