"""Which releases of packages an index has: versions, files, upload days; what is yanked is left out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cannery.lock.io.indexes import ask
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.lock.wheel_tags import installable
from cannery.util.io.http import HostSession
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import requests

    from cannery.catalog.catalog import Index
    from cannery.lock.io.listing import Listed
    from cannery.lock.io.places import Place
    from cannery.util.io.pip_settings import PipSettings
    from cannery.vocab import Arch

WORKERS = 8
# Seconds of each wait for an index.
PATIENCE = 5.0


@dataclass(frozen=True)
class Releases:
    """What an index lists of a package. `trouble` is why it could not be asked; there is no file then."""

    files: tuple[Listed, ...] = ()
    trouble: str = ""

    @cached_property
    def versions(self) -> dict[Version, list[Listed]]:
        """The files by version."""
        found: dict[Version, list[Listed]] = {}
        for file in self.files:
            found.setdefault(Version(file.version), []).append(file)
        return found

    @cached_property
    def releases(self) -> dict[Version, list[Listed]]:
        """The files by version without its local part; equal versions are one, however they are written."""
        found: dict[Version, list[Listed]] = {}
        for file in self.files:
            found.setdefault(Version(Version(file.version).public), []).append(file)
        return found

    @property
    def newest(self) -> Version | None:
        """The newest version, a final one where there is any; None without files."""
        return max({v for v in self.versions if not v.is_prerelease} or self.versions, default=None)

    def newest_for(self, targets: Collection[tuple[str, Arch]], allowed: SpecifierSet) -> Version | None:
        """Return the newest allowed final version that has a file for each of `targets`; None when none has."""
        for version in sorted((v for v in self.versions if not v.is_prerelease), reverse=True):
            if allowed.contains(version.public) and all(self.has(str(version), *target) for target in targets):
                return version
        return None

    def has(self, version: str, python: str, arch: Arch) -> bool:
        """Whether there is a file of `version` for the target; its local part counts when `version` has one."""
        return any(_fits(file, python, arch) for file in self._of(version))

    def uploaded(self, version: str) -> str:
        """Return the day on which the last file of `version` came, "" where the index has no days."""
        return max((file.uploaded for file in self._of(version)), default="")

    def spelt(self, version: str) -> str:
        """Return `version` as the index writes it (`2.59` is `2.59.0` there), "" where it has no file of it."""
        found = next((Version(file.version) for file in self._of(version)), None)
        if found is None:
            return ""
        return str(found) if Version(version).local else found.public

    def _of(self, version: str) -> Sequence[Listed]:
        wanted = Version(version)
        return (self.versions if wanted.local else self.releases).get(wanted, ())


def list_releases(
    questions: Iterable[tuple[str, str]], indexes: Mapping[str, Index], settings: PipSettings
) -> dict[tuple[str, str], Releases]:
    """Ask for each (index name, package), several at once; an index that is not reached is a part of the answer.

    Of the default index: the host's main index, and where that has nothing of the package its extra places; of another
    one its own places and the host's extra ones, as for a lock.
    """
    wanted = sorted(set(questions))
    session = HostSession(settings)
    with ThreadPoolExecutor(WORKERS) as pool:
        found = pool.map(lambda question: _releases(question, indexes, settings, session), wanted)
        return dict(zip(wanted, found, strict=True))


def _releases(
    question: tuple[str, str], indexes: Mapping[str, Index], settings: PipSettings, session: requests.Session
) -> Releases:
    index, package = question
    extras = extra_places(settings)
    own: Sequence[Place] = (default_place(settings),) if index == DEFAULT_INDEX else bound_places(index, indexes)
    answers = [_ask(place, package, session) for place in own]
    files = next((answer.files for answer in answers if answer.files), ())
    if index != DEFAULT_INDEX or not files:
        files += tuple(file for place in extras for file in _ask(place, package, session).files)
    reached = files or not all(answer.trouble for answer in answers)
    return Releases(files) if reached else Releases(trouble=answers[0].trouble)


def _ask(place: Place, package: str, session: requests.Session) -> Releases:
    answer = ask(place, package, session, PATIENCE)
    files = tuple(listed for listed in answer.files if listed.yanked is None)
    return Releases(files, "" if answer.reached else str(answer))


def _fits(file: Listed, python: str, arch: Arch) -> bool:
    """Whether a file can be installed for the target, as it is or after a build; without a range, for any Python."""
    try:
        wanted = SpecifierSet(file.requires_python)
    except InvalidSpecifier:
        wanted = SpecifierSet()
    takes = any(wanted.contains(f"{python}.{patch}") for patch in (0, 20))
    return takes and installable(file.file, python, arch)
