"""The layers of a plan, and the digests of all that decides what is in them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cannery.plan.patched import words_of
from cannery.plan.plan import Inputs, Layer, LayerKind, Plan
from cannery.plan.tags import PLAN_DIGITS
from cannery.recipe.environment import expand_env, image_environment
from cannery.recipe.recipe import with_arch
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.plan.grouping import Group
    from cannery.plan.source_step import SourceStep
    from cannery.recipe.recipe import Chosen, Recipe


# Fields of a profile that change nothing in an image.
IN_NO_IMAGE = {"summary", "place", "replaced", "documents", "substitutes", "warnings", "extends", "without"}


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
