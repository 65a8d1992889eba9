"""A plan on the base image that was found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.base.real import BaseNeed
from cannery.util.image_reference import BASE_DIGEST, BASE_NAME, pinned, split_digest
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.plan.plan import Plan


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
