"""The bill of materials of an image: all packages in its plan. `cyclonedx` and `spdx` write it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from packageurl import PackageURL

from cannery.lock.lock import PROFILE_VIA
from cannery.plan.make import package_family
from cannery.util.addresses import parse_reference, split_digest
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.catalog.addresses import Host
    from cannery.plan import Plan
    from cannery.plan.sources import SourceStep


class Origin(StrEnum):
    """Where a part of an image comes from."""

    BASE = "base"
    SYSTEM = "system"
    WHEEL = "wheel"
    SDIST = "sdist"
    SOURCE = "source"


# The origins of Python distributions. `asked_by` only names these.
DISTRIBUTIONS = {Origin.WHEEL, Origin.SDIST, Origin.SOURCE}


@dataclass(frozen=True)
class Item:
    """One part of an image. `sha256` is that of its file, `asked_by` are the distributions that require it.

    `commit` is set for a source, `notes` are more facts by name. `purl` is None for a part that is not public.
    """

    origin: Origin
    name: str
    version: str
    purl: PackageURL | None
    sha256: str = ""
    licence: str = ""
    commit: str = ""
    asked_by: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """Its id in a document. Sources have their component's name: two of them may be of one distribution."""
        return f"{self.origin}:{self.notes.get('component', self.name)}"


@dataclass(frozen=True)
class Bill:
    """All parts of one image, its name, and a fixed id and time, so that documents are reproducible."""

    profile: str
    tag: str
    items: tuple[Item, ...]
    id: uuid.UUID
    made: datetime
    notes: Mapping[str, str]

    @property
    def depends(self) -> Mapping[str, tuple[str, ...]]:
        """What each part requires, by `Item.ref`. "" is the image, which has the parts that no other requires."""
        distributions = {item.name: item.ref for item in self.items if item.origin in DISTRIBUTIONS}
        asks: dict[str, list[str]] = {}
        for item in self.items:
            asking = [distributions[name] for name in item.asked_by if name in distributions]
            if PROFILE_VIA in item.asked_by or not asking:
                asking.append("")
            for ref in asking:
                asks.setdefault(ref, []).append(item.ref)
        return {ref: tuple(found) for ref, found in asks.items()}


def make_bill(plan: Plan, licences: Mapping[str, str], hosts: Mapping[str, Host]) -> Bill:
    """Return the bill of materials of the image of `plan`.

    `licences` are the known ones as {distribution: licence}; `hosts` are the catalog's git hosts. The id comes from the
    plan's name and the time is the plan's epoch, so the same plan gives the same document.
    """
    target = plan.recipe.target
    items = (
        _base(plan),
        *_system(plan),
        *_wheels(plan, licences),
        *(_source(plan, step, hosts) for step in plan.sources),
    )
    return Bill(
        plan.recipe.name,
        str(plan.tag),
        items,
        uuid.uuid5(uuid.NAMESPACE_OID, f"cannery {plan.reference} {target.arch}"),
        datetime.fromtimestamp(plan.epoch, UTC),
        {"plan": plan.digest, "target": str(target), "cann": target.cann, "base": str(plan.recipe.base.kind)},
    )


def _base(plan: Plan) -> Item:
    reference, digest = split_digest(plan.base_reference)
    if plan.recipe.base.kind is BaseKind.STANDIN:
        notes = {"made by": "cannery: a Debian system with stubs in place of CANN"}
        return Item(Origin.BASE, *reference.rpartition(":")[::2], None, notes=notes)
    found = parse_reference(reference)
    purl = PackageURL("docker", None, found.repository, digest or found.tag, {"repository_url": found.registry})
    return Item(Origin.BASE, reference, digest or found.tag, purl)


def _system(plan: Plan) -> Iterator[Item]:
    """Yield the packages of the system layer. Their versions are not known: the mirror's newest are installed."""
    recipe = plan.recipe
    distribution = "debian" if recipe.base.kind is BaseKind.STANDIN else recipe.target.os.rstrip("0123456789.")
    kind = {"apt": "deb", "dnf": "rpm"}[package_family(recipe)]
    for name in plan.system_packages:
        purl = PackageURL(kind, distribution.lower(), name, None, {"arch": str(recipe.target.arch)})
        yield Item(Origin.SYSTEM, name, "", purl)


def _wheels(plan: Plan, licences: Mapping[str, str]) -> Iterator[Item]:
    for group in plan.groups:
        for package in group.packages:
            yield Item(
                Origin.SDIST if package.is_sdist else Origin.WHEEL,
                package.name,
                package.version,
                PackageURL("pypi", None, package.name, package.version),
                sha256=package.sha256,
                licence=licences.get(package.name, ""),
                asked_by=package.via,
                notes={"file": package.file, "index": package.index, "layer": group.name},
            )


def _source(plan: Plan, step: SourceStep, hosts: Mapping[str, Host]) -> Item:
    notes = {"component": step.name, "layer": step.name, "install": str(step.install)}
    notes |= {"patched by": "; ".join(one.origin for one in step.patched_by)} if step.patched_by else {}
    if step.release:
        released = PackageURL("pypi", None, step.package, step.release)
        return Item(Origin.SDIST, step.package, step.release, released, step.content, notes=notes)
    if step.is_local:
        notes |= {"own tree": step.content, "changed": "yes" if step.dirty else "no"}
        return Item(Origin.SOURCE, step.package, "", None, commit=step.commit or "", notes=notes)
    where = next(chosen.component.hosts for chosen in plan.recipe.sources if chosen.name == step.name)
    purl = _of_repository(step.package, step.version, step.commit or "", where, hosts)
    return Item(Origin.SOURCE, step.package, step.version, purl, commit=step.commit or "", notes=notes)


def _of_repository(
    name: str, version: str, commit: str, where: Mapping[str, str], hosts: Mapping[str, Host]
) -> PackageURL | None:
    """Return the package URL of a commit. GitHub has its own type."""
    if "github" in where:
        owner, _, repository = where["github"].partition("/")
        return PackageURL("github", owner, repository, commit)
    for host, repository in where.items():
        url = hosts[host].url.format(repository=repository)
        return PackageURL("generic", None, name, version, {"vcs_url": f"git+{url}@{commit}"})
    return None
