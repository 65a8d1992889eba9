"""Which commit or release of a source an image has: by metadata, git trees, Cannery's manifest, or its version."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cannery.against.difference import Difference, Kind
from cannery.against.expected import tree_tops
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.against.facts import Inventory
    from cannery.against.git_trees import GitTree
    from cannery.against.pythons import Distribution
    from cannery.recipe.recipe import ChosenSource

SHOWN = 12  # digits of a commit


class State(StrEnum):
    """How a source in the image stands to the profile's."""

    SAME = "same"
    # As far as it can be told: the version fits, or the release that may stand in for the commit is there.
    NEAR = "near"
    OTHER = "other"
    MISSING = "missing"


@dataclass(frozen=True)
class FoundSource:
    """A source of the profile in the image; `commit` is "" where nothing tells it, `by` what tells it."""

    chosen: ChosenSource
    state: State
    commit: str = ""
    version: str = ""
    place: str = ""
    by: str = ""


def find_source(chosen: ChosenSource, inventory: Inventory) -> FoundSource:
    """Return what the image has of a source."""
    one = inventory.distributions.get(chosen.package)
    tree = _tree(chosen, inventory, one)
    version = one.version if one else ""
    told = _manifest_commit(chosen, inventory, version)
    commit, by = "", ""
    if one is not None and one.commit:
        commit, by = one.commit, "its metadata"
    elif tree is not None and tree.commit:
        commit, by = tree.commit, f"HEAD of {tree.path}"
    elif told:
        commit, by = told, "the manifest"
    place = tree.path if tree else (one.tree or one.site if one else "")
    if one is not None and _is_package_alone(chosen, one, tree, told):
        if copy := _copy(chosen, inventory):
            return FoundSource(chosen, State.NEAR, place=copy)
        return FoundSource(chosen, State.OTHER, commit, version, f"a package in {one.site}, not the whole tree", by)
    if not commit and one is None:
        place = place or _copy(chosen, inventory)
        return FoundSource(chosen, State.NEAR if place else State.MISSING, place=place)
    return FoundSource(chosen, _state(chosen, commit, version), commit, version, place, by)


def _is_package_alone(chosen: ChosenSource, one: Distribution, tree: GitTree | None, told: str) -> bool:
    """Whether a profile wants the whole tree, and what is installed holds only the packages of it."""
    return chosen.component.install is Install.TREE and tree is None and not told and not one.editable


def _tree(chosen: ChosenSource, inventory: Inventory, one: Distribution | None) -> GitTree | None:
    """Return the git tree that a source was installed from, else one of its repository."""
    if one is not None and one.tree:
        above = [tree for tree in inventory.trees if f"{one.tree}/".startswith(f"{tree.path}/")]
        if above:
            return max(above, key=lambda tree: len(tree.path))
    if one is not None and chosen.component.install is not Install.TREE:
        return None  # a clone beside an installed package says nothing of it
    names = {repository.rpartition("/")[2].lower() for repository in chosen.component.hosts.values()}
    return next((tree for tree in inventory.trees if tree.name in names), None)


def _copy(chosen: ChosenSource, inventory: Inventory) -> str:
    """Return where a tree stands that was copied without its .git; "" where no tree is wanted or none is there."""
    tops = tree_tops(chosen.component) if chosen.component.install is Install.TREE else ()
    for top in tops:
        for path in sorted(inventory.seen.texts):
            if path.endswith(f"/{top}") and "-packages/" not in path:
                return path.removesuffix(f"/{top}")
    return ""


def _manifest_commit(chosen: ChosenSource, inventory: Inventory, version: str) -> str:
    """Return what Cannery's manifest says of it, while the distribution is still the one that it speaks of."""
    for source in (inventory.manifest or {}).get("sources", ()):
        known = source.get("version")
        if source.get("component") == chosen.name and (not version or not known or _equal(str(known), version)):
            return str(source.get("commit") or "")
    return ""


def _state(chosen: ChosenSource, commit: str, version: str) -> State:
    if commit and chosen.commit:
        if chosen.commit.startswith(commit):
            return State.SAME
        # A release stands in for a commit where the catalog says so.
        return State.NEAR if _stands_in(chosen, version) else State.OTHER
    if chosen.release is not None and _equal(chosen.release, version):
        return State.SAME
    return State.NEAR if _stands_in(chosen, version) or _equal(chosen.version or "", version) else State.OTHER


def _stands_in(chosen: ChosenSource, version: str) -> bool:
    revision = chosen.component.revisions.get(chosen.commit or "")
    return bool(revision and revision.release and "+g" not in version and _equal(revision.release, version))


def _equal(one: str, other: str) -> bool:
    try:
        return bool(one and other) and Version(Version(one).public) == Version(Version(other).public)
    except InvalidVersion:
        return one == other


def source_differences(found: FoundSource) -> Iterator[Difference]:
    """Give the difference of a source, a note where it is near; nothing where it is the same."""
    chosen, wanted = found.chosen, _wanted(found.chosen)
    if found.state is State.MISSING:
        yield Difference(Kind.SOURCE, chosen.name, wanted, "", f"nor a tree of {_repository(chosen)}")
    elif found.state is State.OTHER:
        yield Difference(Kind.SOURCE, chosen.name, wanted, _found(found), _known(found))
    elif found.state is State.NEAR:
        stands_in = _stands_in(chosen, found.version)
        words = "the release that stands in for it" if stands_in else "nothing in the image tells the commit"
        yield Difference(Kind.NOTE, chosen.name, wanted, _found(found), words)


def _wanted(chosen: ChosenSource) -> str:
    version = chosen.version or ""
    return f"{chosen.commit[:SHOWN]} ({version})" if chosen.commit else f"release {chosen.release or version}"


def _found(found: FoundSource) -> str:
    commit = f"{found.commit[:SHOWN]} by {found.by}" if found.commit else ""
    return ", ".join(part for part in (found.version, commit) if part) or f"a tree at {found.place}"


def _known(found: FoundSource) -> str:
    """Return what the catalog knows of the commit that is there."""
    revisions = found.chosen.component.revisions
    known = next((r for commit, r in revisions.items() if found.commit and commit.startswith(found.commit)), None)
    same = known is found.chosen.known
    return f"version {known.version} of {known.date or 'an unknown day'}" if known and not same else found.place


def _repository(chosen: ChosenSource) -> str:
    return next(iter(chosen.component.hosts.values()), chosen.name)
