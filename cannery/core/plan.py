"""A plan: the ordered layers of an image, each with a digest of its inputs. It assumes no engine.

What a layer holds stands here; how it is made stands in templates/. The plan's own digest does not depend on the arch:
it covers the locks of all arches of the profile, so that the arches of one image share a tag (CONTRACTS, "Tags").
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from cannery.core.archive_step import ArchiveStep, archive_steps
from cannery.core.base_env import expand_env
from cannery.core.environment import image_environment
from cannery.core.errors import FindingsError
from cannery.core.grouping import Group, make_groups
from cannery.core.left_out import LeftOut, left_out
from cannery.core.patching import is_own_patch, with_patchers, words_of
from cannery.core.recipe import with_arch
from cannery.core.source_step import SourceStep, source_steps
from cannery.core.standin import standin_reference
from cannery.core.tags import PLAN_DIGITS, ImageTag
from cannery.core.trees import tree_links
from cannery.core.words import Arch, BaseKind, ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.core.catalog import StandIn
    from cannery.core.lock import Lock, LockedPackage
    from cannery.core.patch_set import PatchSet
    from cannery.core.patching import NotPatched, PatchedTree
    from cannery.core.recipe import Chosen, Recipe
    from cannery.core.source_step import LocalTree


Family = Literal["apt", "dnf"]


class LayerKind(StrEnum):
    """How a layer is made; each kind has a template in templates/stages."""

    SYSTEM = "system"
    VENV = "venv"
    GROUP = "group"
    BUILT = "built"
    ARCHIVE = "archive"
    LINKS = "links"
    FILES = "files"
    SOURCE = "source"


@dataclass(frozen=True)
class Layer:
    """One layer: its stage's name, its kind, the 12-hex digest of its inputs, and what it brings, in words."""

    name: str
    kind: LayerKind
    digest: str
    summary: str
    packages: int = 0
    wheel_bytes: int = 0


@dataclass(frozen=True)
class Link:
    """A symbolic link that a layer makes."""

    path: str
    target: str


@dataclass(frozen=True)
class Plan:
    """Everything an engine, or later an assembler, needs to make one image.

    `base_reference` is what the image stands on, `build_reference` what the stages run in, on `build_arch`.
    `epoch` (seconds) is the mtime of every file that the layers add. `env` is the complete environment.
    """

    recipe: Recipe
    lock: Lock
    tools: Lock
    base_reference: str
    build_reference: str
    build_arch: Arch
    groups: tuple[Group, ...]
    archives: tuple[ArchiveStep, ...]
    sources: tuple[SourceStep, ...]
    layers: tuple[Layer, ...]
    system_packages: tuple[str, ...]
    links: tuple[Link, ...]
    env: Mapping[str, str]
    epoch: int
    digest: str
    forced: tuple[str, ...]
    # What became of the sources' patches, once their trees were read (`cannery.edge.patching`).
    patched: tuple[PatchedTree, ...] = ()
    not_patched: tuple[NotPatched, ...] = ()

    @property
    def tag(self) -> ImageTag:
        """The image's tag."""
        target, kind = self.recipe.target, self.recipe.base.kind
        return ImageTag(
            target.cann,
            target.chip,
            target.os,
            target.python,
            self.digest,
            standin=kind is BaseKind.STANDIN,
            custom=kind is BaseKind.CUSTOM,
            forced=bool(self.forced),
        )

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What a stand-in image lacks of its profile."""
        return left_out(self.recipe)

    @property
    def reference(self) -> str:
        """`<profile>:<tag>`."""
        return f"{self.recipe.name}:{self.tag}"

    @property
    def folder(self) -> str:
        """The name of the rendered folder: profiles, targets and kinds of base do not write over each other."""
        return f"{self.recipe.name}-{self.tag.alias}-{self.recipe.target.arch}"

    @property
    def alias(self) -> str:
        """The moving alias, `<profile>:<tag without plan>`."""
        return f"{self.recipe.name}:{self.tag.alias}"

    @property
    def references(self) -> tuple[str, ...]:
        """Every tag of the image. A set that is not the profile's own is a trial: it takes no moving alias."""
        is_own = any(step.is_local or is_own_patch(step.patched_by) for step in self.sources)
        is_trial = self.recipe.is_trial or is_own
        return (self.reference,) if is_trial else (self.reference, self.alias)


@dataclass(frozen=True)
class Inputs:
    """What a plan is made from, beside the recipe.

    The locks of all arches, the build tools' lock, the digest of each file below templates/, the build host's arch, the
    stand-in's recipe, the codes of the errors that a user forced, what native builds call the chip, and the user's own
    trees by component, and the patch sets of images/patches and of the user.
    """

    locks: Mapping[Arch, Lock]
    tools: Lock
    templates: Mapping[str, str]
    build_arch: Arch
    standin: StandIn
    forced: tuple[str, ...] = ()
    socs: tuple[str, ...] = ()
    local: Mapping[str, LocalTree] = field(default_factory=dict)
    patch_sets: tuple[PatchSet, ...] = ()


def make_plan(recipe: Recipe, inputs: Inputs) -> Plan:
    """Plan the image of `recipe`. Raises `FindingsError` when a lock that it needs is missing or incomplete."""
    lock = inputs.locks.get(recipe.target.arch)
    if lock is None:
        raise FindingsError(f"no lock for {recipe.name} on {recipe.target.arch}", hint="run `python build.py lock`")
    if not lock.complete:
        raise FindingsError(
            f"the lock of {recipe.name} for {recipe.target.arch} is incomplete: {', '.join(_open(lock.packages))}",
            hint=_completed(recipe, lock, inputs),
        )
    base, build = _references(recipe, lock, inputs)
    sources = with_patchers(recipe, tuple(source_steps(recipe, lock, inputs.socs, inputs.local)), inputs.patch_sets)
    archives = tuple(archive_steps(recipe))
    stepped = {step.package for step in sources}
    stepped |= {lacking.name for lacking in left_out(recipe)}
    packages_of = tuple(package for package in lock.packages if package.name not in stepped)
    groups = make_groups(packages_of, tuple(c.package for c in (*recipe.wheels, *recipe.sources)))
    family = package_family(recipe)
    system = [c for c in recipe.chosen if c.component.kind is ComponentKind.SYSTEM]
    packages = sorted({p for c in system for p in _packages(c, family)})
    links = [link for c in system for link in _links(c, family, recipe.target.arch)]
    links += [Link(path, target) for path, target in tree_links(recipe)]
    env = _environment(recipe)
    epoch = plan_epoch(recipe)
    digest = _digest(_arch_independent(recipe, inputs, sources))
    files = [digest, list(inputs.forced), str(recipe.target.arch)]
    system_parts = (base, packages, env, _user(recipe))
    layers = tuple(_layers((groups, archives, sources), system_parts, links, files, epoch, inputs))
    return Plan(
        recipe=recipe,
        lock=lock,
        tools=inputs.tools,
        base_reference=base,
        build_reference=build,
        build_arch=inputs.build_arch,
        groups=groups,
        archives=archives,
        sources=sources,
        layers=layers,
        system_packages=tuple(packages),
        links=tuple(links),
        env=env,
        epoch=epoch,
        digest=digest,
        forced=inputs.forced,
    )


def _completed(recipe: Recipe, lock: Lock, inputs: Inputs) -> str:
    """Say how to come to a complete lock: on a host that reaches the indexes, or for an arch that has one already."""
    indexes = ", ".join(sorted({package.index for package in lock.packages if not package.complete}))
    hint = f"make lock PROFILE={recipe.name} where index {indexes} can be reached (images/indexes.yaml)"
    complete = [arch for arch, other in inputs.locks.items() if other.complete]
    return hint + (f"; the lock for ARCH={complete[0]} is complete" if complete else "")


def _environment(recipe: Recipe) -> Mapping[str, str]:
    return image_environment(recipe, expand_env(recipe.base.line, recipe.target, recipe.base.tag))


def plan_epoch(recipe: Recipe) -> int:
    """Return the mtime (seconds) of all that the layers add: the start of the profile's date bound in UTC."""
    return int(datetime.fromisoformat(recipe.profile.exclude_newer).replace(tzinfo=UTC).timestamp())


def package_family(recipe: Recipe) -> Family:
    """Return the package manager's family of the base: apt on Ubuntu and on the stand-in, which is Debian; else dnf."""
    is_debian = recipe.base.kind is BaseKind.STANDIN or recipe.target.os.startswith(("ubuntu", "debian"))
    return "apt" if is_debian else "dnf"


def _packages(chosen: Chosen, family: Family) -> tuple[str, ...]:
    """Return the system packages of a component; raise `FindingsError` where it has none for this package manager."""
    found = chosen.component.system.get(family)
    if found is None:
        raise FindingsError(
            f"component {chosen.name} names no {family} packages, which this base needs",
            where=f"images/components/{chosen.name}.yaml",
            hint=f"add `system: {{{family}: […]}}`; an empty list says that nothing is needed",
        )
    return found


def _links(chosen: Chosen, family: Family, arch: Arch) -> Iterator[Link]:
    for path, targets in sorted(chosen.component.links.items()):
        target = targets.get(family, {}).get(arch)
        if target is None:
            raise FindingsError(
                f"component {chosen.name} does not say where {path} leads with {family} on {arch}",
                where=f"images/components/{chosen.name}.yaml",
                hint=f"add it below `links`, `{path}`, `{family}`",
            )
        yield Link(path, target)


def _open(packages: Iterable[LockedPackage]) -> list[str]:
    return [f"{p.name} {p.version} (index {p.index})" for p in packages if not p.complete]


def _references(recipe: Recipe, lock: Lock, inputs: Inputs) -> tuple[str, str]:
    """Return the image to stand on, and the image of the build host's arch that the stages run in."""
    if recipe.base.kind is not BaseKind.STANDIN:
        return recipe.base.references[0], recipe.base.references[0]
    reference = standin_reference(recipe, lock, inputs.standin)
    if inputs.build_arch is recipe.target.arch:
        return reference, reference
    native = inputs.locks.get(inputs.build_arch)
    if native is None:
        raise FindingsError(
            f"the stages run on this host's {inputs.build_arch}, for which {recipe.name} has no lock",
            hint=f"add {inputs.build_arch} to the profile's arch and run `python build.py lock {recipe.name}`",
        )
    return reference, standin_reference(recipe, native, inputs.standin)


def _digest(value: Any) -> str:  # noqa: ANN401 - JSON
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:PLAN_DIGITS]


def _arch_independent(recipe: Recipe, inputs: Inputs, sources: tuple[SourceStep, ...]) -> dict[str, Any]:
    """Return what decides an image's content in every arch; the arch itself is left out."""
    patched = {step.name: [asdict(one) for one in step.patched_by] for step in sources if step.patched_by}
    target = {k: v for k, v in asdict(recipe.target).items() if k != "arch"}
    return {
        "profile": recipe.name,
        "target": target,
        "base": [recipe.base.kind, recipe.base.line.model_dump(mode="json"), recipe.base.references],
        "components": [[c.name, *_told(c)] for c in recipe.chosen],
        "profile_file": recipe.profile.model_dump(
            mode="json", exclude={"summary", "documents", "warnings"}, exclude_defaults=True
        ),
        "locks": {arch: [asdict(p) for p in lock.packages] for arch, lock in sorted(inputs.locks.items())},
        # ATB's C++ ABI differs by arch (`cannery.core.atb`).
        "env": {arch: _environment(with_arch(recipe, arch)) for arch in sorted(inputs.locks)},
        "templates": dict(inputs.templates),
        "forced": inputs.forced,
        **({"patched": patched} if patched else {}),
        **({"local": {name: asdict(tree) for name, tree in sorted(inputs.local.items())}} if inputs.local else {}),
    }


def _user(recipe: Recipe) -> dict[str, Any] | None:
    return None if recipe.profile.user is None else recipe.profile.user.model_dump()


def _told(chosen: Chosen) -> tuple[Any, ...]:
    """What a component's file says of the pin; what it knows of other revisions changes no image."""
    others = {"summary", "metadata", "revisions", "releases", "archives"}
    file = chosen.component.model_dump(mode="json", exclude=others, exclude_defaults=True)
    told = chosen.known or chosen.archive
    known = (
        told.model_dump(mode="json", exclude={"source", "note", "requires_from"}, exclude_defaults=True)
        if told
        else None
    )
    return file, known, chosen.version, chosen.commit, chosen.release


def _layers(  # noqa: PLR0913, PLR0917 - what decides layers
    parts: tuple[tuple[Group, ...], tuple[ArchiveStep, ...], tuple[SourceStep, ...]],
    system: tuple[str, list[str], Mapping[str, str], Any],
    links: list[Link],
    files: list[Any],
    epoch: int,
    inputs: Inputs,
) -> Iterator[Layer]:
    # uv, the interpreter's minor version and stage.py decide how wheels become files; the other build tools only
    # matter to built groups. `system` is base, packages, environment (profile.d) and user, `files` what the manifest
    # says.
    uv = [p.version for p in inputs.tools.packages if p.name == "uv"]
    common = [epoch, _of(inputs, "tools/stage.py"), inputs.tools.python, uv]
    built_by = [[p.name, p.sha256] for p in inputs.tools.packages]
    summary = f"system packages: {' '.join(system[1]) or 'none'}"
    below = [_digest([epoch, _of(inputs, "tools/system.sh"), system])]
    yield Layer("system", LayerKind.SYSTEM, below[0], summary)
    yield Layer("venv", LayerKind.VENV, _digest([common, system[0]]), "an empty virtual environment")
    groups, archives, sources = parts
    for archive in archives:
        # It is compiled on the system alone.
        made_by = [asdict(archive), [_of(inputs, f"tools/{name}") for name in ("archive.py", "hook.py")], below[0]]
        summary = f"{', '.join(archive.files)} of {archive.file}"
        yield Layer(archive.name, LayerKind.ARCHIVE, _digest([common, made_by]), summary)
    for group in groups:
        kind = LayerKind.BUILT if group.built else LayerKind.GROUP
        content = [[p.name, p.version, p.sha256] for p in group.packages]
        below.append(_digest([common, kind, content, built_by if group.built else []]))
        yield Layer(group.name, kind, below[-1], _names(group), len(group.packages), group.size)
    for step in sources:
        tools = ("source.py", "hook.py", "overlay.py", *(("native.py",) if step.native else ()))
        # What is native is compiled on the system, with the wheels of every group in place.
        # What is only told of a source, in the manifest, changes no file of its layer.
        built = {key: value for key, value in asdict(step).items() if key not in {"commit", "dirty"}}
        made_by = [built, [_of(inputs, f"tools/{name}") for name in tools], built_by, below * step.native]
        yield Layer(step.name, LayerKind.SOURCE, _digest([common, made_by]), _source_words(step))
    if links:
        summary = ", ".join(link.path for link in links)
        yield Layer("links", LayerKind.LINKS, _digest([common, [asdict(link) for link in links]]), summary)
    files = [*files, _of(inputs, "rootfs/")]
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
