"""Makes a plan: which packages share a layer, the content of each layer, the digest of its inputs, and the base.

- The package of a component has its own layer, because users change its pin. So does every package of `OWN_LAYER_BYTES`
  or more, because it dominates pulls and pushes.
- All other packages share a layer with packages of the same owner. The owner is the first component, in the profile's
  order, that depends on the package.
- Groups are in the profile's order, in which the most frequent changes come last. Source distributions are the last
  group, because their wheels have no hash in the lock.
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.component import System
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.plan.sources import SourceStep
    from cannery.recipe.recipe import Choice, Chosen, Recipe

OWN_LAYER_BYTES = 8_000_000  # of wheel; a smaller layer transfers in about a second at 10 MB/s
MAX_GROUPS = 34  # with base, system, venv and files, an image has fewer than 40 layers
# Fields of a profile that do not change an image. A stand-in image has the substitutes that it takes.
IN_NO_IMAGE = {"summary", "place", "replaced", "documents", "substitutes", "warnings", "extends", "without"}


@dataclass(frozen=True)
class Group:
    """The packages of one layer, sorted by name. `built`: a stage first builds their wheels."""

    name: str
    packages: tuple[LockedPackage, ...]
    built: bool = False

    @property
    def size(self) -> int:
        """Bytes of the group's wheels."""
        return sum(package.size for package in self.packages)


def make_groups(packages: Sequence[LockedPackage], components: Sequence[str]) -> tuple[Group, ...]:
    """Divide `packages` into groups; `components` are the distributions of the profile's components, in order."""
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
    while len(groups) > limit:  # a profile with very many components: join the two smallest neighbours
        at = min(range(len(groups) - 1), key=lambda i: groups[i].size + groups[i + 1].size)
        joined = sorted([*groups[at].packages, *groups[at + 1].packages], key=lambda p: p.name)
        groups[at : at + 2] = [Group(groups[at].name, tuple(joined))]
    if built:
        groups.append(Group("built", tuple(built), built=True))
    return tuple(groups)


def _owners(packages: Sequence[LockedPackage], components: Sequence[str]) -> Mapping[str, str]:
    """Map each package to the first component that depends on it."""
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
    """Move the smallest packages (not components) to their owner's shared group, until `limit` have their own layer."""
    candidates = sorted(
        ((p.size, owner, p) for owner, found in own.items() for p in found if p.name not in components),
        key=lambda item: (item[0], item[2].name),
    )
    surplus = sum(map(len, own.values())) - limit
    for _, owner, package in candidates[: max(surplus, 0)]:
        own[owner].remove(package)
        shared[owner] = sorted([*shared.get(owner, []), package], key=lambda p: p.name)


def environments(recipe: Recipe, arches: Iterable[Arch]) -> dict[Arch, Mapping[str, str]]:
    """Return the complete environment of an image by arch: that of its base and the additions of the profile."""
    base = expand_env(recipe.base.line, recipe.target, recipe.base.tag)
    return {arch: image_environment(with_arch(recipe, arch), base) for arch in sorted(arches)}


def _digest(value: Any) -> str:  # noqa: ANN401 - JSON
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:PLAN_DIGITS]


def plan_digest(recipe: Recipe, inputs: Inputs, sources: tuple[SourceStep, ...], env: Mapping[Arch, Any]) -> str:
    """Return the digest of all inputs of an image: 12 hex digits, the same for every arch.

    It covers name, version, index and form of each package, but not the hash, and the tag of the base, but not its
    registry. So completing a lock, or using a mirror, does not change the tag. For the user's own base, it covers the
    reference.
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
        "env": env,
        "templates": dict(inputs.templates),
        "table": inputs.table.facts(torch_npu),
        "forced": inputs.forced,
        # The manifest in the image names them, with their reasons.
        **({"substitutes": [one.model_dump() for one in recipe.substitutes]} if recipe.substitutes else {}),
        **({"patched": patched} if patched else {}),
        **({"local": {name: asdict(tree) for name, tree in sorted(inputs.local.items())}} if inputs.local else {}),
    }
    return _digest(content)


def _component_inputs(chosen: Chosen) -> tuple[Any, ...]:
    """Return the parts of a component's file for its pin. Other revisions do not change an image."""
    known = chosen.known and chosen.known.inputs
    return chosen.component.inputs, known, chosen.version, chosen.commit, chosen.release


def make_layers(plan: Plan, inputs: Inputs) -> Iterator[Layer]:
    """Yield the layers of `plan` from the base up, each with the digest of its inputs."""
    # The installer, the minor version of Python and these tools determine the files of wheels. The other build tools
    # only affect layers that are built.
    installer = [p.version for p in inputs.tools.packages if p.name == "installer"]
    common = [plan.epoch, _templates_below(inputs, "tools/common/"), inputs.tools.python, installer]
    built_by = [[p.name, p.sha256] for p in inputs.tools.packages]
    summary = f"system packages: {' '.join(plan.system_packages) or 'none'}"
    user = plan.recipe.profile.user
    # The environment is also written into profile.d.
    system = [plan.base_reference, plan.system_packages, plan.env, user.model_dump() if user else None]
    below = [_digest([plan.epoch, _templates_below(inputs, "tools/system.sh"), system])]
    yield Layer("system", LayerKind.SYSTEM, below[0], summary)
    start = plan.recipe.profile.workdir
    yield Layer("venv", LayerKind.VENV, _digest([common, plan.base_reference, start]), "an empty virtual environment")
    # Groups that are built from source distributions come first, because they run commands.
    for group in sorted(plan.groups, key=lambda group: not group.built):
        kind = LayerKind.BUILT if group.built else LayerKind.GROUP
        content = [[p.name, p.version, p.sha256] for p in group.packages]
        below.append(_digest([common, kind, content, built_by if group.built else []]))
        names = [f"{p.name} {p.version}" for p in group.packages]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        yield Layer(group.name, kind, below[-1], ", ".join(names[:4]) + more, len(names), group.size)
    for step in sorted(plan.sources, key=lambda step: step.is_tree):
        # A native source is compiled with the layers of all groups below it. Fields that are only recorded in the
        # manifest do not change the layer.
        built = {key: value for key, value in asdict(step).items() if key not in {"commit", "dirty"}}
        made_by = [built, _templates_below(inputs, "tools/source.py"), built_by, below * step.native]
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
        _templates_below(inputs, "rootfs/"),
    ]
    yield Layer("files", LayerKind.FILES, _digest([common, files]), "manifest and verify script")


def _source_words(step: SourceStep) -> str:
    if step.is_local:
        at = f" at {step.commit[:12]}" if step.commit else ""
        changed = ", with changes" if step.dirty else ""
        return f"{step.package}, {step.install} of your own tree{at}{changed}{words_of(step.patched_by)}"
    origin = f"release {step.release}" if step.release else f"commit {(step.commit or 'none')[:12]}"
    return f"{step.package} {step.version}, {step.install} of {origin}{words_of(step.patched_by)}"


def _templates_below(inputs: Inputs, prefix: str) -> list[tuple[str, str]]:
    return sorted((name, digest) for name, digest in inputs.templates.items() if name.startswith(prefix))


def make_plan(recipe: Recipe, inputs: Inputs) -> Plan:
    """Plan the image of `recipe`. The lock may be incomplete. Raises like `_references`, `_packages` and `_links`."""
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
    env = environments(recipe, inputs.locks)
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
        env=env[recipe.target.arch],
        epoch=plan_epoch(recipe),
        digest=plan_digest(recipe, inputs, sources, env),
        forced=inputs.forced,
    )
    return replace(plan, layers=tuple(make_layers(plan, inputs)))


def plan_epoch(recipe: Recipe) -> int:
    """Return the mtime (seconds) of all added files: the start of the profile's date bound in UTC."""
    return int(datetime.fromisoformat(recipe.profile.exclude_newer).replace(tzinfo=UTC).timestamp())


def package_family(recipe: Recipe) -> Family:
    """Return the package manager of the base: apt on Ubuntu and on the stand-in (Debian), else dnf."""
    is_debian = recipe.base.kind is BaseKind.STANDIN or recipe.target.os.startswith(("ubuntu", "debian"))
    return "apt" if is_debian else "dnf"


def _packages(chosen: Choice[System], family: Family) -> tuple[str, ...]:
    """Return the system packages of a component. Raises `FindingsError` if it has none for this package manager."""
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
    """Return the image to build on, and the image for the build host's arch in which the stages run."""
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
    """Return the base that `plan` needs. The arch of the user's own builder (`own_builder`) is not known here."""
    recipe = plan.recipe
    arches = {recipe.target.arch} if own_builder else {recipe.target.arch, plan.build_arch}
    return BaseNeed(recipe.base.references, recipe.target.arch, tuple(sorted(arches)), recipe.base.kind)


def on_base(plan: Plan, reference: str, digest: str | None, source: str = "") -> Plan:
    """Return `plan` with its base pinned by digest. The tag does not change.

    `source` is the reference of a mirror that has the base, or "".
    """
    exact = pinned(reference, digest)
    return replace(
        plan, base_reference=exact, build_reference=exact, base_source=pinned(source, digest) if source else ""
    )


def on_labelled_base(plan: Plan, labels: Mapping[str, str]) -> Plan:
    """Return `plan` with the base that the labels of its image name, so that both manifests are equal."""
    if plan.recipe.base.kind is BaseKind.STANDIN or BASE_NAME not in labels:
        return plan
    name, digest = split_digest(labels[BASE_NAME])
    known = {split_digest(reference)[0] for reference in plan.recipe.base.references}
    return on_base(plan, name, labels.get(BASE_DIGEST) or digest) if name in known else plan


@dataclass(frozen=True)
class BaseNeed:
    """The base that a build needs: the first of `references` that exists for all `arches`.

    `arch` is the target's. It is in `arches`, together with the build host's arch, on which the stages run.
    """

    references: tuple[str, ...]
    arch: Arch
    arches: tuple[Arch, ...]
    kind: BaseKind
