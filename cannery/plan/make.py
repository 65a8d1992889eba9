"""Make a plan: what a layer holds, and the digest of its inputs; and a plan on the base image that was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cannery.errors import FindingsError
from cannery.plan.layers import make_groups, make_layers, plan_digest, planned_environment
from cannery.plan.plan import Family, Inputs, Link, Plan
from cannery.plan.sources import source_steps, with_patchers
from cannery.recipe.recipe import left_out, tree_links
from cannery.standin.tree import standin_reference
from cannery.util.image_reference import BASE_DIGEST, BASE_NAME, pinned, split_digest
from cannery.vocab import Arch, BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.catalog.component import System
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Choice, Recipe


def make_plan(recipe: Recipe, inputs: Inputs) -> Plan:
    """Plan the image of `recipe`. Raises `FindingsError` when a lock that it needs is missing. No hash is needed."""
    lock = inputs.locks.get(recipe.target.arch)
    if lock is None:
        raise FindingsError(f"no lock for {recipe.name} on {recipe.target.arch}", hint="run `build.py lock`")
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
    """Return the image to build on, and the image of the build host's arch that the stages run in."""
    if recipe.base.kind is not BaseKind.STANDIN:
        return recipe.base.references[0], recipe.base.references[0]
    reference = standin_reference(recipe, lock, inputs.standin)
    if inputs.build_arch is recipe.target.arch:
        return reference, reference
    native = inputs.locks.get(inputs.build_arch)
    if native is None:
        raise FindingsError(
            f"the stages run on this host's {inputs.build_arch}, for which {recipe.name} has no lock",
            hint=f"add {inputs.build_arch} to the profile's arch and run `build.py lock {recipe.name}`",
        )
    return reference, standin_reference(recipe, native, inputs.standin)


def base_need(plan: Plan, *, own_builder: bool = False) -> BaseNeed:
    """Return what `plan` asks. Another builder (`own_builder`) runs its stages on an arch that is not known here."""
    recipe = plan.recipe
    arches = {recipe.target.arch} if own_builder else {recipe.target.arch, plan.build_arch}
    return BaseNeed(recipe.base.references, recipe.target.arch, tuple(sorted(arches)), recipe.base.kind)


def on_base(plan: Plan, reference: str, digest: str | None, source: str = "") -> Plan:
    """Return `plan` on that very image: FROM names it by digest. The tag stays: it names the recipe's references.

    `source` is the reference of a mirror that has it, "" for none.
    """
    exact = pinned(reference, digest)
    return replace(
        plan, base_reference=exact, build_reference=exact, base_source=pinned(source, digest) if source else ""
    )


def on_labelled_base(plan: Plan, labels: Mapping[str, str]) -> Plan:
    """Return `plan` on the base that an image built from it names in its labels: their manifests are then equal."""
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
