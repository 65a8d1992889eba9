"""Cut a lock into groups, one image layer each.

A component's own package has a layer to itself, for its pin is what people change; so has every package of
`OWN_LAYER_BYTES` or more, for it is what pulls and pushes wait for. The rest share a layer by who brings them: the
first component, in the profile's order, from which the package is reached. Groups keep the profile's order, what
changes most last. Packages that exist only as source distributions make the last group (their wheels have no hash in
the lock).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.lock.lock import LockedPackage

OWN_LAYER_BYTES = 8_000_000  # of wheel; a layer below that is moved in about a second at 10 MB/s
MAX_GROUPS = 34  # with base, system, venv and files an image stays below 40 layers


@dataclass(frozen=True)
class Group:
    """The packages of one layer, sorted by name. `built` groups hold packages whose wheels a stage makes first."""

    name: str
    packages: tuple[LockedPackage, ...]
    built: bool = False

    @property
    def size(self) -> int:
        """Bytes of the group's wheels."""
        return sum(package.size for package in self.packages)


def make_groups(packages: Sequence[LockedPackage], components: Sequence[str]) -> tuple[Group, ...]:
    """Cut `packages` into groups; `components` are the distributions of the profile's components, in its order."""
    owners = _owners(packages, components)
    order = ["", *components]
    own: dict[str, list[LockedPackage]] = {}
    shared: dict[str, list[LockedPackage]] = {}
    built: list[LockedPackage] = []
    for package in sorted(packages, key=lambda p: p.name):
        owner = owners.get(package.name, "")
        if package.is_sdist:
            built.append(package)
        elif package.name in components or package.size >= OWN_LAYER_BYTES:
            own.setdefault(owner, []).append(package)
        else:
            shared.setdefault(owner, []).append(package)
    limit = MAX_GROUPS - bool(built)
    _merge_smallest(own, shared, components, limit=limit - len(shared))
    groups: list[Group] = []
    for owner in order:
        if owner in shared:
            groups.append(Group(f"{owner or 'cann'}-deps", tuple(shared[owner])))
        brought = [p for p in own.get(owner, []) if p.name != owner]
        groups += [Group(package.name, (package,)) for package in brought]
        groups += [Group(package.name, (package,)) for package in own.get(owner, []) if package.name == owner]
    _fold(groups, limit)
    if built:
        groups.append(Group("built", tuple(built), built=True))
    return tuple(groups)


def _fold(groups: list[Group], limit: int) -> None:
    """Join the two neighbours that are smallest together until `limit` are left: a profile of very many components."""
    while len(groups) > limit:
        pairs = [(groups[i].size + groups[i + 1].size, i) for i in range(len(groups) - 1)]
        _, at = min(pairs)
        joined = sorted([*groups[at].packages, *groups[at + 1].packages], key=lambda p: p.name)
        groups[at : at + 2] = [Group(groups[at].name, tuple(joined))]


def _owners(packages: Sequence[LockedPackage], components: Sequence[str]) -> Mapping[str, str]:
    """Map each package to the first component from which it is reached."""
    brings: dict[str, list[str]] = {}
    for package in packages:
        for parent in package.via:
            brings.setdefault(parent, []).append(package.name)
    owners: dict[str, str] = {name: name for name in components}
    for component in components:
        queue = deque([component])
        while queue:
            for name in sorted(brings.get(queue.popleft(), ())):
                if name not in owners:
                    owners[name] = component
                    queue.append(name)
    return owners


def _merge_smallest(
    own: dict[str, list[LockedPackage]],
    shared: dict[str, list[LockedPackage]],
    components: Sequence[str],
    *,
    limit: int,
) -> None:
    """Move the smallest packages that are no components into their owner's shared group until `limit` are left."""
    candidates = sorted(
        ((p.size, owner, p) for owner, found in own.items() for p in found if p.name not in components),
        key=lambda item: (item[0], item[2].name),
    )
    surplus = sum(map(len, own.values())) - limit
    for _, owner, package in candidates[: max(surplus, 0)]:
        own[owner].remove(package)
        shared[owner] = sorted([*shared.get(owner, []), package], key=lambda p: p.name)
