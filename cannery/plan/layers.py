"""The layers of a plan: which packages share one, and the digests of all that decides what is in them.

A component's own package has a layer to itself, for its pin is what people change; so has every package of
`OWN_LAYER_BYTES` or more, for it is what pulls and pushes wait for. The rest share a layer by who brings them: the
first component, in the profile's order, from which the package is reached. Groups keep the profile's order, what
changes most last. Packages that exist only as source distributions make the last group (their wheels have no hash in
the lock).
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cannery.plan.plan import PLAN_DIGITS, Inputs, Layer, LayerKind, Plan
from cannery.plan.sources import words_of
from cannery.recipe.environment import expand_env, image_environment
from cannery.recipe.recipe import with_arch
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.lock.lock import LockedPackage
    from cannery.plan.sources import SourceStep
    from cannery.recipe.recipe import Chosen, Recipe


OWN_LAYER_BYTES = 8_000_000  # of wheel; a layer below that is moved in about a second at 10 MB/s
MAX_GROUPS = 34  # with base, system, venv and files an image stays below 40 layers
# Fields of a profile that change nothing in an image.
IN_NO_IMAGE = {"summary", "place", "replaced", "documents", "substitutes", "warnings", "extends", "without"}


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


def planned_environment(recipe: Recipe) -> Mapping[str, str]:
    """Return the complete environment of an image: that of its base, and what the profile adds."""
    return image_environment(recipe, expand_env(recipe.base.line, recipe.target, recipe.base.tag))


def _digest(value: Any) -> str:  # noqa: ANN401 - JSON
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:PLAN_DIGITS]


def plan_digest(recipe: Recipe, inputs: Inputs, sources: tuple[SourceStep, ...]) -> str:
    """Return the digest of everything that goes into an image: 12 hex digits, the same for every arch.

    A package counts by name, version, index and form, not by its hash, and a base by its tag, not by its registry. So a
    lock that becomes complete, and a mirror, change no tag. A base of the user's own counts by its reference.
    """
    base = (recipe.base.tag_name, *(recipe.base.references if recipe.base.kind is BaseKind.CUSTOM else ()))
    locks = {
        arch: [[p.name, p.version, p.index, p.is_sdist] for p in lock.packages]
        for arch, lock in sorted(inputs.locks.items())
    }
    torch_npu = {p.version for lock in inputs.locks.values() for p in lock.packages if p.name == "torch-npu"}
    patched = {step.name: [asdict(one) for one in step.patched_by] for step in sources if step.patched_by}
    content = {
        "profile": recipe.name,
        # The arch itself is left out.
        "target": {k: v for k, v in asdict(recipe.target).items() if k != "arch"},
        "base": [recipe.base.kind, recipe.base.line.model_dump(mode="json"), base],
        "components": [[c.name, *_told(c)] for c in recipe.chosen],
        "profile_file": recipe.profile.model_dump(mode="json", exclude=IN_NO_IMAGE, exclude_defaults=True),
        "locks": locks,
        # ATB's C++ ABI differs by arch (`cannery.recipe.environment`).
        "env": {arch: planned_environment(with_arch(recipe, arch)) for arch in sorted(inputs.locks)},
        "templates": dict(inputs.templates),
        "table": inputs.table.facts(torch_npu),
        "forced": inputs.forced,
        **({"patched": patched} if patched else {}),
        **({"local": {name: asdict(tree) for name, tree in sorted(inputs.local.items())}} if inputs.local else {}),
    }
    return _digest(content)


def _told(chosen: Chosen) -> tuple[Any, ...]:
    """What a component's file holds about the pin; what it holds about other revisions changes no image."""
    others = {"summary", "metadata", "revisions", "releases"}
    file = chosen.component.model_dump(mode="json", exclude=others, exclude_defaults=True)
    known = (
        chosen.known.model_dump(mode="json", exclude={"source", "note", "requires_from"}, exclude_defaults=True)
        if chosen.known
        else None
    )
    return file, known, chosen.version, chosen.commit, chosen.release


def make_layers(plan: Plan, inputs: Inputs) -> Iterator[Layer]:
    """Give the layers of `plan` in their order on the base, each with the digest of its inputs."""
    # The installer, the interpreter's minor version and these tools decide how wheels become files; the other build
    # tools only matter to what is built.
    installer = [p.version for p in inputs.tools.packages if p.name == "installer"]
    common = [plan.epoch, _of(inputs, "tools/common/"), inputs.tools.python, installer]
    built_by = [[p.name, p.sha256] for p in inputs.tools.packages]
    summary = f"system packages: {' '.join(plan.system_packages) or 'none'}"
    user = plan.recipe.profile.user
    # The environment is written into profile.d too.
    system = [plan.base_reference, plan.system_packages, plan.env, user.model_dump() if user else None]
    below = [_digest([plan.epoch, _of(inputs, "tools/system.sh"), system])]
    yield Layer("system", LayerKind.SYSTEM, below[0], summary)
    start = plan.recipe.profile.workdir
    yield Layer("venv", LayerKind.VENV, _digest([common, plan.base_reference, start]), "an empty virtual environment")
    # What needs a system comes first: the groups that are built of source distributions.
    for group in sorted(plan.groups, key=lambda group: not group.built):
        kind = LayerKind.BUILT if group.built else LayerKind.GROUP
        content = [[p.name, p.version, p.sha256] for p in group.packages]
        below.append(_digest([common, kind, content, built_by if group.built else []]))
        yield Layer(group.name, kind, below[-1], _names(group), len(group.packages), group.size)
    for step in sorted(plan.sources, key=lambda step: step.is_tree):
        tools = ("source.py", "overlay.py", *(("native.py",) if step.native else ()))
        # What is native is compiled on the system, with the wheels of every group in place.
        # What is only recorded of a source, in the manifest, changes no file of its layer.
        built = {key: value for key, value in asdict(step).items() if key not in {"commit", "dirty"}}
        made_by = [built, [_of(inputs, f"tools/{name}") for name in tools], built_by, below * step.native]
        kind = LayerKind.TREE if step.is_tree else LayerKind.SOURCE
        yield Layer(step.name, kind, _digest([common, made_by]), _source_words(step))
    if plan.links:
        summary = ", ".join(link.path for link in plan.links)
        yield Layer("links", LayerKind.LINKS, _digest([common, [asdict(link) for link in plan.links]]), summary)
    files = [
        plan.digest,
        [package.sha256 for package in plan.lock.packages],
        list(plan.forced),
        str(plan.recipe.target.arch),
        _of(inputs, "rootfs/"),
    ]
    yield Layer("files", LayerKind.FILES, _digest([common, files]), "manifest and verify script")


def _source_words(step: SourceStep) -> str:
    if step.is_local:
        at = f" at {step.commit[:12]}" if step.commit else ""
        changed = ", with changes" if step.dirty else ""
        return f"{step.package}, {step.install} of your own tree{at}{changed}{words_of(step.patched_by)}"
    origin = f"release {step.release}" if step.release else f"commit {(step.commit or 'none')[:12]}"
    return f"{step.package} {step.version}, {step.install} of {origin}{words_of(step.patched_by)}"


def _of(inputs: Inputs, prefix: str) -> list[tuple[str, str]]:
    return sorted((name, digest) for name, digest in inputs.templates.items() if name.startswith(prefix))


def _names(group: Group) -> str:
    names = [f"{p.name} {p.version}" for p in group.packages]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
