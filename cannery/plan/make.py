"""Make a plan: which packages share a layer, what a layer holds, the digest of its inputs, and which base it is on.

- A component's own package has a layer to itself, since its pin is what people change. So has every package of
  `OWN_LAYER_BYTES` or more, since pulls and pushes wait for it.
- The rest share a layer with the packages of the same owner: the first component, in the profile's order, from which
  the package is reached.
- Groups keep the profile's order, what changes most last. Packages that exist only as source distributions are the
  last group: their wheels have no hash in the lock.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cannery.errors import FindingsError
from cannery.plan import PLAN_DIGITS, Family, Inputs, Layer, LayerKind, Link, Plan
from cannery.plan.sources import source_steps, with_patchers, words_of
from cannery.recipe.environment import expand_env, image_environment
from cannery.recipe.recipe import left_out, tree_links, with_arch
from cannery.standin.tree import standin_spec
from cannery.util.addresses import BASE_DIGEST, BASE_NAME, pinned, split_digest
from cannery.vocab import Arch, BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.component import System
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.plan.sources import SourceStep
    from cannery.recipe.recipe import Choice, Chosen, Recipe

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
    while len(groups) > limit:  # a profile of very many components: the two smallest neighbours are joined
        at = min(range(len(groups) - 1), key=lambda i: groups[i].size + groups[i + 1].size)
        joined = sorted([*groups[at].packages, *groups[at + 1].packages], key=lambda p: p.name)
        groups[at : at + 2] = [Group(groups[at].name, tuple(joined))]
    if built:
        groups.append(Group("built", tuple(built), built=True))
    return tuple(groups)


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
        "components": [[c.name, *_component_inputs(c)] for c in recipe.chosen],
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


def _component_inputs(chosen: Chosen) -> tuple[Any, ...]:
    """Return what a component's file has about the pin. What it has about other revisions changes no image."""
    others = {"summary", "metadata", "revisions", "releases"}
    file = chosen.component.model_dump(mode="json", exclude=others, exclude_defaults=True)
    of_no_image, known = {"source", "note", "requires_from"}, chosen.known
    found = known.model_dump(mode="json", exclude=of_no_image, exclude_defaults=True) if known else None
    return file, found, chosen.version, chosen.commit, chosen.release


def make_layers(plan: Plan, inputs: Inputs) -> Iterator[Layer]:
    """Yield the layers of `plan` in their order on the base, each with the digest of its inputs."""
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
        names = [f"{p.name} {p.version}" for p in group.packages]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        yield Layer(group.name, kind, below[-1], ", ".join(names[:4]) + more, len(names), group.size)
    for step in sorted(plan.sources, key=lambda step: step.is_tree):
        # What is native is compiled on the system, with the wheels of every group in place.
        # What is only recorded of a source, in the manifest, changes no file of its layer.
        built = {key: value for key, value in asdict(step).items() if key not in {"commit", "dirty"}}
        made_by = [built, _of(inputs, "tools/source.py"), built_by, below * step.native]
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


def make_plan(recipe: Recipe, inputs: Inputs) -> Plan:
    """Plan the image of `recipe`. Raises as `_references`, `_packages` and `_links`. No hash is needed."""
    lock = inputs.locks[recipe.target.arch]
    base, build = _references(recipe, lock, inputs)
    sources = with_patchers(recipe, tuple(source_steps(recipe, lock, inputs.socs, inputs.local)), inputs.patch_sets)
    stepped = {step.package for step in sources}
    stepped |= {lacking.name for lacking in left_out(recipe)}
    packages_of = tuple(package for package in lock.packages if package.name not in stepped)
    groups = make_groups(packages_of, tuple(c.package for c in (*recipe.wheels, *recipe.sources)))
    family = package_family(recipe)
    system = recipe.system
    packages = sorted({p for c in system for p in _packages(c, family)})
    links = [link for c in system for link in _links(c, family, recipe.target.arch)]
    links += [Link(path, target) for path, target in tree_links(recipe)]
    plan = Plan(
        recipe=recipe,
        lock=lock,
        tools=inputs.tools,
        base_reference=base,
        build_reference=build,
        build_arch=inputs.build_arch,
        groups=groups,
        sources=sources,
        layers=(),
        system_packages=tuple(packages),
        links=tuple(links),
        env=planned_environment(recipe),
        epoch=plan_epoch(recipe),
        digest=plan_digest(recipe, inputs, sources),
        forced=inputs.forced,
    )
    return replace(plan, layers=tuple(make_layers(plan, inputs)))


def plan_epoch(recipe: Recipe) -> int:
    """Return the mtime (seconds) of all that the layers add: the start of the profile's date bound in UTC."""
    return int(datetime.fromisoformat(recipe.profile.exclude_newer).replace(tzinfo=UTC).timestamp())


def package_family(recipe: Recipe) -> Family:
    """Return the package manager's family of the base: apt on Ubuntu and on the stand-in, which is Debian; else dnf."""
    is_debian = recipe.base.kind is BaseKind.STANDIN or recipe.target.os.startswith(("ubuntu", "debian"))
    return "apt" if is_debian else "dnf"


def _packages(chosen: Choice[System], family: Family) -> tuple[str, ...]:
    """Return the system packages of a component; raise `FindingsError` where it has none for this package manager."""
    found = chosen.component.system.get(family)
    if found is None:
        raise FindingsError(
            f"component {chosen.name} names no {family} packages, which this base needs",
            where=f"images/components/{chosen.name}.yaml",
            hint=f"add `system: {{{family}: […]}}`; an empty list means that nothing is needed",
        )
    return found


def _links(chosen: Choice[System], family: Family, arch: Arch) -> Iterator[Link]:
    for path, targets in sorted(chosen.component.links.items()):
        target = targets.get(family, {}).get(arch)
        if target is None:
            raise FindingsError(
                f"component {chosen.name} has no target of {path} for {family} on {arch}",
                where=f"images/components/{chosen.name}.yaml",
                hint=f"add it below `links`, `{path}`, `{family}`",
            )
        yield Link(path, target)


def _references(recipe: Recipe, lock: Lock, inputs: Inputs) -> tuple[str, str]:
    """Return the image to build on, and the image for the build host's arch that the stages run in."""
    if recipe.base.kind is not BaseKind.STANDIN:
        return recipe.base.references[0], recipe.base.references[0]
    reference = standin_spec(recipe, lock, inputs.standin).reference
    if inputs.build_arch is recipe.target.arch:
        return reference, reference
    native = inputs.locks.get(inputs.build_arch)
    if native is None:
        raise FindingsError(
            f"the stages run on this host's {inputs.build_arch}, for which {recipe.name} has no lock",
            hint=f"add {inputs.build_arch} to the profile's arch and run `build.py lock {recipe.name}`",
        )
    return reference, standin_spec(recipe, native, inputs.standin).reference


def base_need(plan: Plan, *, own_builder: bool = False) -> BaseNeed:
    """Return what `plan` needs. Another builder (`own_builder`) runs its stages on an arch that is not known here."""
    recipe = plan.recipe
    arches = {recipe.target.arch} if own_builder else {recipe.target.arch, plan.build_arch}
    return BaseNeed(recipe.base.references, recipe.target.arch, tuple(sorted(arches)), recipe.base.kind)


def on_base(plan: Plan, reference: str, digest: str | None, source: str = "") -> Plan:
    """Return `plan` on exactly this image: FROM names it by digest. The tag follows from the recipe's references.

    `source` is the reference of a mirror that has it, "" for none.
    """
    exact = pinned(reference, digest)
    return replace(
        plan, base_reference=exact, build_reference=exact, base_source=pinned(source, digest) if source else ""
    )


def on_labelled_base(plan: Plan, labels: Mapping[str, str]) -> Plan:
    """Return `plan` on the base that the labels of its image name, so that their manifests are equal."""
    if plan.recipe.base.kind is BaseKind.STANDIN or BASE_NAME not in labels:
        return plan
    name, digest = split_digest(labels[BASE_NAME])
    known = {split_digest(reference)[0] for reference in plan.recipe.base.references}
    return on_base(plan, name, labels.get(BASE_DIGEST) or digest) if name in known else plan


@dataclass(frozen=True)
class BaseNeed:
    """What a build needs of its base: the first of `references` that exists for every one of `arches`.

    `arch` is the target's, which is among `arches` (the stages run on the build host's own); `kind` as in the recipe.
    """

    references: tuple[str, ...]
    arch: Arch
    arches: tuple[Arch, ...]
    kind: BaseKind
