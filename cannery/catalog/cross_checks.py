"""What only several entries or files of a catalog together show to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.catalog.component import FromSource, System, Wheels
from cannery.catalog.errors import FaultError
from cannery.vocab import Chip, did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from cannery.catalog.catalog import Catalog, Pin, Profile
    from cannery.catalog.component import Component


# The file below images/, and what is wrong there.
Found = tuple[str, FaultError]


def cross_check(catalog: Catalog, unread: Collection[str]) -> Iterator[Found]:
    """Give names that another file has to define and does not.

    `unread` are files (`components/ray.yaml`) that are there and could not be read: what they define is taken as known.
    """
    names = {file.removesuffix(".yaml") for file in unread}
    bases = {*catalog.bases, *(name.removeprefix("bases/") for name in names if name.startswith("bases/"))}
    parts = {*catalog.components, *(name.removeprefix("components/") for name in names if name.startswith("compo"))}
    for name, profile in catalog.profiles.items():
        file, cann = f"profiles/{name}.yaml", profile.target.cann
        if cann not in bases:
            yield file, FaultError(f"no CANN line {cann!r}", did_you_mean(cann, bases), ("target", "cann"))
        for position, pin in enumerate(profile.components):
            yield from _pin_faults(file, position, pin, catalog, parts)
        yield from _unused(file, profile, catalog)
    for name, component in catalog.components.items():
        for path, what, word, known in _references(component, catalog):
            if word not in (parts if what == "component" else known):
                hint = _new_component(word, parts) if what == "component" else did_you_mean(word, known)
                yield f"components/{name}.yaml", FaultError(f"no {what} {word!r}", hint, path)
        yield from _dangling(name, component, catalog)
    for index in sorted({*catalog.hashes} - {*catalog.indexes}):
        yield "hashes.yaml", FaultError(f"no index {index!r}", did_you_mean(index, catalog.indexes), (index,))
    yield from _misnamed(catalog)


def _unused(file: str, profile: Profile, catalog: Catalog) -> Iterator[Found]:
    """Give substitutes of what the profile has no wheel of, and a profile in its place that is not there."""
    pinned = {pin.name for pin in profile.components if pin.version}
    wheels = {name for name in pinned if isinstance(catalog.components.get(name), Wheels)}
    for position, one in enumerate(profile.substitutes):
        if one.name not in wheels:
            what = f"{one.name} is no wheel that this profile pins"
            yield file, FaultError(what, did_you_mean(one.name, wheels), ("substitutes", position, "name"))
    if profile.replaced and profile.replaced.by not in catalog.profiles:
        what = f"no profile {profile.replaced.by!r}"
        yield file, FaultError(what, did_you_mean(profile.replaced.by, catalog.profiles), ("replaced", "by"))


def _references(
    component: Component, catalog: Catalog
) -> Iterator[tuple[tuple[str | int, ...], str, str, Collection[str]]]:
    """Give (where, what, name, the names that are known) of each name that another file has to define."""
    for at, other in enumerate(component.after):
        yield ("after", at), "component", other, ()
    if isinstance(component, Wheels) and component.index is not None:
        yield ("index",), "index", component.index, catalog.indexes
    if isinstance(component, FromSource):
        for host in component.hosts:
            yield ("hosts", host), "git host", host, catalog.hosts
        for at, edit in enumerate(component.edits):
            yield ("edits", at, "component"), "component", edit.component, ()
        for repo, other in (component.patch_sets.repos if component.patch_sets else {}).items():
            yield ("patch_sets", "repos", repo), "component", other, ()
        for link, target in component.tree_links.items():
            yield ("tree_links", link), "component", target.partition("/")[0], ()


def _dangling(name: str, component: Component, catalog: Catalog) -> Iterator[Found]:
    """Give links to what is not exported of the other component's tree: they would lead nowhere in the image."""
    for link, target in component.tree_links.items() if isinstance(component, FromSource) else ():
        other, _, inside = target.partition("/")
        paths = getattr(catalog.components.get(other), "paths", ())
        if paths and not any(f"{inside}/".startswith(f"{path.rstrip('/')}/") for path in paths):
            what = f"{target} is in no image: of {other} only {', '.join(paths)} is exported"
            hint = f"add it to `paths` in images/components/{other}.yaml"
            yield f"components/{name}.yaml", FaultError(what, hint, ("tree_links", link))


def _pin_faults(file: str, position: int, pin: Pin, catalog: Catalog, known: Collection[str]) -> Iterator[Found]:
    where, component = ("components", position), catalog.components.get(pin.name)
    if pin.name not in known:
        yield file, FaultError(f"no component {pin.name!r}", _new_component(pin.name, known), (*where, "name"))
    elif component is not None:
        yield from ((file, FaultError(what, hint, where)) for what, hint in _misfits(pin, component, catalog))


def _misfits(pin: Pin, component: Component, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Give what of a profile's pin does not fit the component's kind, or is not known there, and what to do."""
    wanted = _pin_fields(component)
    unread = [name for name in ("version", "commit", "release") if getattr(pin, name) and name not in wanted]
    if unread:
        takes = f"it takes {', '.join(wanted)}" if wanted else "remove it: its version follows from the base"
        yield f"{pin.name} is of kind {component.kind}: no {', no '.join(unread)}", takes
        return
    file = catalog.file(f"components/{pin.name}.yaml")
    if isinstance(component, FromSource):
        if bool(pin.commit) == bool(pin.release):
            yield f"{pin.name} is of kind {component.kind}", "name its commit, or the release in its place"
        elif pin.commit and pin.commit not in component.revisions:
            yield f"nothing is known of {pin.name} {pin.commit}", f"add it to revisions in {file}"


def _pin_fields(component: Component) -> tuple[str, ...]:
    if isinstance(component, System):
        return ()
    return ("version",) if isinstance(component, Wheels) else ("commit", "release")


def _new_component(word: str, known: Collection[str]) -> str:
    """Return what to do about a component that has no file: make it, or take one that is there."""
    near = nearest(word, sorted(known))
    other = f"did you mean {' or '.join(near)}?" if near else f"take one of {', '.join(sorted(known))}"
    return f"make images/components/{canonicalize_name(word)}.yaml (docs/reference/fields.md), or {other}"


def _misnamed(catalog: Catalog) -> Iterator[Found]:
    """Give chips that are missing, and bases whose file has the name of another CANN."""
    for chip in Chip:
        if chip not in catalog.chips:
            yield "chips.yaml", FaultError(f"chip {chip} is missing", "add it, as the others are")
    for name, line in catalog.bases.items():
        if line.cann != name:
            what = f"{line.cann!r} is not in the file's name, which is {name!r}"
            yield f"bases/{name}.yaml", FaultError(what, f"correct it, or name the file {line.cann}.yaml", ("cann",))
