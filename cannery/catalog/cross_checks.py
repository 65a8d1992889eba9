"""What only several entries or files of a catalog together show to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from cannery.catalog.compatibility import contradictions
from cannery.catalog.fault import problem, split_problem
from cannery.vocab import Chip, ComponentKind, did_you_mean, nearest

if TYPE_CHECKING:
    from cannery.catalog.catalog import (
        Catalog,
        Pin,
    )
    from cannery.catalog.component import Component
    from cannery.catalog.yaml_text import YamlDocument
    from cannery.errors import UsageError


def cross_check(catalog: Catalog, documents: dict[str, YamlDocument]) -> list[UsageError]:
    """What only several entries or files together show: names that another file has to define, rows that contradict."""
    problems: list[UsageError] = []

    def need(file: str, location: tuple[str | int, ...], word: str, known: dict[str, Any], what: str) -> None:
        if word not in known:
            where = documents[file].where(location)
            hint = _new_component(word, known) if what == "component" else did_you_mean(word, known)
            problems.append(problem(where, f"{'.'.join(map(str, location))}: no {what} {word!r}", hint))

    for name, profile in catalog.profiles.items():
        file = f"profiles/{name}.yaml"
        need(file, ("target", "cann"), profile.target.cann, catalog.bases, "CANN line")
        for position, pin in enumerate(profile.components):
            need(file, ("components", position, "name"), pin.name, catalog.components, "component")
            found = catalog.components.get(pin.name)
            fault = _pin_fault(pin, found) if found is not None else ""
            if fault:
                where = documents[file].where(("components", position))
                problems.append(split_problem(where, f"components.{position}: {fault}"))
    for name, component in catalog.components.items():
        if component.index is not None:
            need(f"components/{name}.yaml", ("index",), component.index, catalog.indexes, "index")
        for host in component.hosts:
            need(f"components/{name}.yaml", ("hosts", host), host, catalog.hosts, "git host")
        others: list[tuple[tuple[str | int, ...], str]] = [
            (("after", position), other) for position, other in enumerate(component.after)
        ]
        others += [(("edits", at, "component"), edit.component) for at, edit in enumerate(component.edits)]
        repos = component.patch_sets.repos if component.patch_sets else {}
        others += [(("patch_sets", "repos", repo), other) for repo, other in repos.items()]
        others += [(("tree_links", link), target.partition("/")[0]) for link, target in component.tree_links.items()]
        for location, other in others:
            need(f"components/{name}.yaml", location, other, catalog.components, "component")
    table = documents["compatibility.yaml"]
    problems += [
        problem(table.where(fault.path), f"{'.'.join(map(str, fault.path))}: {fault.what}", fault.hint)
        for fault in contradictions(catalog.compatibility)
    ]
    return problems + _without_files(catalog, documents) + _misnamed(catalog, documents)


def _without_files(catalog: Catalog, documents: dict[str, YamlDocument]) -> list[UsageError]:
    """Hosts that an archive is to come from, and of which nobody knows where they have files."""
    return [
        problem(
            documents[f"components/{name}.yaml"].where(("hosts", host)),
            f"hosts.{host}: images/hosts.yaml does not say where {host} has published files",
            f"add `files` to {host} there, or take it out here",
        )
        for name, component in catalog.components.items()
        if component.kind is ComponentKind.ARCHIVE
        for host in component.hosts
        if host in catalog.hosts and catalog.hosts[host].files is None
    ]


def _pin_fault(pin: Pin, component: Component) -> str:
    """Say what of a profile's pin does not go with the component's kind, or is not known there; "" when all does."""
    given = [name for name in ("version", "commit", "release", "extras") if getattr(pin, name)]
    wanted = {
        ComponentKind.SYSTEM: (),
        ComponentKind.WHEELS: ("version", "extras"),
        ComponentKind.ARCHIVE: ("version",),
    }.get(component.kind, ("commit", "release", "extras"))
    unread = [name for name in given if name not in wanted]
    if unread:
        return f"{pin.name} is of kind {component.kind}: no {', no '.join(unread)}; {_takes(wanted)}"
    if component.kind is ComponentKind.ARCHIVE and pin.version not in component.archives:
        there = ", ".join(component.archives)
        unknown = f"nothing is known of {pin.name} {pin.version}" if pin.version else f"{pin.name} wants a version"
        return f"{unknown}; known: {there}; add it to archives in images/components/{pin.name}.yaml"
    if not component.kind.is_source:
        return ""
    if bool(pin.commit) == bool(pin.release):
        return f"{pin.name} is of kind {component.kind}; name its commit, or the release in its place"
    word, known = (pin.commit, component.revisions) if pin.commit else (pin.release, component.releases)
    if word in known:
        return ""
    field = "revisions" if pin.commit else "releases"
    return f"nothing is known of {pin.name} {word}; add it to {field} in images/components/{pin.name}.yaml"


def _takes(wanted: tuple[str, ...]) -> str:
    return f"it takes {', '.join(wanted)}" if wanted else "remove it: which version there is follows from the base"


def _new_component(word: str, known: dict[str, Any]) -> str:
    """Say what to do about a component that has no file: make it, or take one that is there."""
    near = nearest(word, sorted(known))
    other = f"did you mean {' or '.join(near)}?" if near else f"take one of {', '.join(sorted(known))}"
    return f"make images/components/{canonicalize_name(word)}.yaml (docs/profiles.md), or {other}"


def _misnamed(catalog: Catalog, documents: dict[str, YamlDocument]) -> list[UsageError]:
    """Chips that are missing, and bases whose file name says another CANN than the file."""
    chips = [
        problem("images/chips.yaml:1", f"chip {chip} is missing", "add it, as the others are")
        for chip in Chip
        if chip not in catalog.chips
    ]
    bases = [
        problem(
            documents[f"bases/{name}.yaml"].where(("cann",)),
            f"cann is {line.cann!r}, the file name says {name!r}",
            f"correct it, or name the file {line.cann}.yaml",
        )
        for name, line in catalog.bases.items()
        if line.cann != name
    ]
    return chips + bases
