"""Locks: what the resolver is asked, and the exact files that it chose. `cannery.lock.text` is their text form."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.vocab import Arch


LOCK_SCHEMA = 1
# What `via` has for a package that the profile itself asks for; no distribution can have this name.
PROFILE_VIA = "<profile>"


@dataclass(frozen=True)
class KnownRelease:
    """What a release asks for, known without its index: (normalised name, version, PEP 508 texts, range of Pythons).

    `file` of a source: what the lock has of it. "" is a commit, which is no package of the lock.
    """

    name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str = ""
    file: Literal["", "sdist", "wheel"] = ""


@dataclass(frozen=True)
class LockRequest:
    """What is asked of the resolver for one (profile, Python, arch). Everything that may change the answer is in it.

    `requirements`, `constraints` and `overrides` are PEP 508 texts; `excludes` are names that must not come in;
    `bindings` are (distribution, index name) pairs: those come from that index only, and nothing else comes from it;
    `exclude_newer` is an ISO date: later uploads do not exist for the resolver; `package_dates` are (distribution, ISO
    date) pairs that take its place. `stand_ins` are used where a bound package's index is not reached. `sources` are
    built: what they are known to ask for counts, and those that come from git are no packages of the lock. `variant`
    is part of the lock's file name: another set for the same target, as a stand-in with substitutes has it.
    """

    profile: str
    python: str
    arch: Arch
    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    overrides: tuple[str, ...]
    excludes: tuple[str, ...]
    exclude_newer: str
    bindings: tuple[tuple[str, str], ...]
    stand_ins: tuple[KnownRelease, ...]
    sources: tuple[KnownRelease, ...] = ()
    package_dates: tuple[tuple[str, str], ...] = ()
    variant: str = ""

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the request: a lock made from another one is stale."""
        asked = {key: value for key, value in asdict(self).items() if key != "variant"}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class LockedPackage:
    """One package of a lock and the one file that provides it.

    `file` is the wheel's or sdist's file name, `sha256` its hash and `size` its bytes; all three are empty (`""`, `""`,
    0) in an incomplete lock, where the package's index could not be reached. With a hash from images/hashes.yaml
    `size` alone may be 0, for unknown. `index` is the name of the index that served it, `via` who
    asked for it (sorted names; `PROFILE_VIA` for a profile's own requirement).
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int
    index: str
    via: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether the file is known by hash."""
        return bool(self.sha256)

    @property
    def is_sdist(self) -> bool:
        """Whether the package exists as a source distribution only, so that a stage has to make its wheel."""
        return bool(self.file) and not self.file.endswith(".whl")


@dataclass(frozen=True)
class Lock:
    """The exact set for one (profile, Python, arch); `packages` are sorted by normalised name."""

    profile: str
    python: str
    arch: Arch
    inputs: str
    exclude_newer: str
    resolver: str
    packages: tuple[LockedPackage, ...]

    @property
    def complete(self) -> bool:
        """Whether every file is known by hash."""
        return all(package.complete for package in self.packages)


def shortest(askers: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """Return the shortest chain of names from a requirement of the profile to `name`, both included.

    `askers` is name → who asks for it, `PROFILE_VIA` for the profile. Who asks and is no key of it is a source, which
    the profile names. Where no chain leads to the profile it is `name` alone.
    """
    paths: deque[tuple[str, ...]] = deque([(name,)])
    seen = {name}
    while paths:
        path = paths.popleft()
        if PROFILE_VIA in askers.get(path[0], (PROFILE_VIA,)):
            return path
        for asker in askers[path[0]]:
            if asker and asker not in seen:
                seen.add(asker)
                paths.append((asker, *path))
    return (name,)


def chain(packages: Iterable[LockedPackage], name: str) -> tuple[str, ...]:
    """Return the shortest chain from the profile to a package of a lock."""
    # `via` may carry an extra of the asker: `ray[default]`
    return shortest({p.name: [asker.split("[")[0] for asker in p.via] for p in packages}, name)
