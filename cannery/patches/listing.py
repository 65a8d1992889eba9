"""Which patch sets there are, for which revisions, and which a profile uses: from the catalog, nothing is fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.catalog.catalog import Catalog, Pin, Profile
    from cannery.patches.sets import PatchSet

# Digits of a commit that are shown.
SHOWN = 12


@dataclass(frozen=True)
class KeptSet:
    """A patch set: what component and revision it is for, where it is kept, and the profiles that use it."""

    component: str
    rev: str
    origin: str
    profiles: tuple[str, ...]

    def __str__(self) -> str:
        used = f"used by {', '.join(self.profiles)}" if self.profiles else "used by no profile"
        return f"{self.rev[:SHOWN]:<{SHOWN}}  {self.origin}; {used}"


def kept_sets(catalog: Catalog, sets: Sequence[PatchSet]) -> tuple[KeptSet, ...]:
    """Return every set that plugins of the catalog keep, then those of folders, by component and revision."""
    return tuple(sorted([*_of_plugins(catalog), *_of_folders(catalog, sets)], key=lambda one: (one.component, one.rev)))


def _of_plugins(catalog: Catalog) -> Iterator[KeptSet]:
    for plugin, component in catalog.sources.items():
        for commit, revision in component.revisions.items():
            for patched, commits in revision.patches.items():
                for rev in commits:
                    users = _users(catalog, patched, rev, (plugin, commit))
                    yield KeptSet(patched, rev, f"{plugin} at {commit[:SHOWN]}", users)


def _of_folders(catalog: Catalog, sets: Sequence[PatchSet]) -> Iterator[KeptSet]:
    for one in sets:
        name = component_named(catalog, one.repo) or one.repo
        yield KeptSet(name, one.rev, one.origin, _users(catalog, name, one.rev, None))


def component_named(catalog: Catalog, repo: str) -> str | None:
    """Return the source component that a repo's name means: its own name, one with that package, or a plugin's word."""
    sources = catalog.sources
    wanted = canonicalize_name(repo)
    words = {word: name for one in sources.values() if one.patch_sets for word, name in one.patch_sets.repos.items()}
    by_package = {canonicalize_name(one.package or name): name for name, one in reversed(sources.items())}
    return repo if repo in sources else words.get(repo) or by_package.get(wanted)


def _users(catalog: Catalog, component: str, rev: str, plugin: tuple[str, str] | None) -> tuple[str, ...]:
    """Return the profiles that pin a component to `rev`, and the plugin (name, commit) that keeps the set."""

    def uses(profile: Profile) -> bool:
        pin = _pin(profile, component)
        there = pin is not None and (pin.commit or "").startswith(rev)
        if plugin is None:
            return there
        keeper = _pin(profile, plugin[0])
        return there and keeper is not None and keeper.commit == plugin[1]

    return tuple(sorted(name for name, profile in catalog.profiles.items() if uses(profile)))


def _pin(profile: Profile, component: str) -> Pin | None:
    return next((pin for pin in profile.components if pin.name == component), None)
