"""Reads images/ into a `Catalog`, checks every file against its model and the other files, and reports all errors."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

from cannery.catalog.addresses import Host, Index, Published, Registries
from cannery.catalog.catalog import BaseLine, Catalog, ChipAccess, Profile, StandIn, Tools
from cannery.catalog.compatibility import Compatibility, Drivers
from cannery.catalog.component import Component, FromSource, System, Wheels
from cannery.catalog.documents import extended, parse_yaml
from cannery.catalog.errors import CatalogError, FaultError, faults, problem
from cannery.catalog.fields import ChipName, IndexName, Name, component_name_fault, profile_name_fault
from cannery.catalog.target import without_build
from cannery.errors import UsageError
from cannery.util.io.files import shown_path
from cannery.vocab import Chip, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from cannery.catalog.catalog import Pin
    from cannery.catalog.documents import Location, YamlDocument

M = TypeVar("M")
# Files that are ignored: hidden ones, and backups of editors and of patch.
LEFT = re.compile(r"\..*|.*(~|\.orig|\.rej)|#.*#")
# Files that are only needed by the profiles that name them. All other files are needed by every profile.
OF_PROFILES = re.compile(r"((?:profiles|components|bases(?!/registries\.yaml))/[^:]+)(?::\d+)?")
BUILT_IN = "images"
# The most problems reported for one file. A wrong file has thousands, and the suggestions for each take time.
MOST_PROBLEMS = 30
# The largest file has 35 kB.
MOST_BYTES = 1 << 20


def read_yaml(path: Path, name: str) -> YamlDocument:
    """Read one YAML file; `name` is its name in messages.

    Raises only `UsageError`: like `parse_yaml`, and for a file that is too large, is not text or cannot be read.
    """
    return parse_yaml(read_yaml_text(path, name), name)


def read_yaml_text(path: Path, name: str) -> str:
    """Return the text of a YAML file. Raises `UsageError` if it is too large, is not text or cannot be read."""
    try:
        # Reading a pipe or a device could block or never end.
        if path.exists() and not path.is_file():
            raise UsageError("is not a regular file", where=name, hint="put a file of that name there, or remove it")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UsageError(
                f"is larger than {MOST_BYTES >> 20} MiB",
                where=name,
                hint="is it the right file? Files of this kind are far smaller",
            )
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError("is not UTF-8 text", where=f"{name}:{line}", hint="save the file as UTF-8") from error
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        raise UsageError(
            f"cannot be read: {error}", where=name, hint="the file has to be there and readable"
        ) from error


def load_catalog(images: Path, own: Path | None = None) -> Catalog:
    """Read every catalog file below `images`. Profiles that use a broken file are left out, with their errors.

    A file in the user's folder `own` replaces the built-in file of the same name.

    Raises one `CatalogError` with all problems if a file that every profile needs is broken, or if no profile is left.
    """
    reader = _Reader(images, own)
    catalog = Catalog(
        profiles=reader.folder("profiles", Profile, profile_name_fault, read=reader.extended),
        chips=reader.file("chips.yaml", dict[ChipName, ChipAccess]),
        components=reader.folder("components", cast("type[Component]", Component), component_name_fault),
        bases=reader.folder("bases", BaseLine, leave=("registries",)),
        registries=reader.file("bases/registries.yaml", Registries),
        indexes=reader.file("indexes.yaml", dict[IndexName, Index]),
        hosts=reader.file("hosts.yaml", dict[Name, Host]),
        tools=reader.file("tools.yaml", Tools),
        standin=reader.file("standin/recipe.yaml", StandIn),
        compatibility=reader.table("compatibility.yaml"),
        drivers=reader.file("drivers.yaml", Drivers),
        hashes=reader.file("hashes.yaml", dict[IndexName, Published]) if reader.has("hashes.yaml") else {},
        own=reader.own_files,
    )
    reader.stop_if_shared()
    noted = {file: [*paths] for file, paths in reader.noted.items()}
    for file, fault in cross_check(catalog, [*filter(None, map(reader.of_profiles, reader.problems))]):
        # An unknown key in an entry may be the misspelt one that the entry is missing.
        if all(path[: len(fault.path)] != fault.path for path in noted.get(file, ())):
            reader.note(file, fault)
    reader.stop_if_shared()
    return _usable(catalog, reader) if reader.problems else catalog


def _usable(catalog: Catalog, reader: _Reader) -> Catalog:
    """Return the catalog without its broken parts. Raises `CatalogError` if no profile is left."""
    problems = tuple(reader.problems)
    by_file: dict[str, list[UsageError]] = {}
    for part in problems:
        by_file.setdefault(reader.of_profiles(part), []).append(part)
    broken = {file: CatalogError(parts) for file, parts in by_file.items()}
    for name, profile in catalog.profiles.items():
        own = f"profiles/{name}.yaml"
        files = [own, *(f"components/{pin.name}.yaml" for pin in profile.components)]
        files.append(f"bases/{without_build(profile.target.cann)}.yaml")
        parts = [part for file in dict.fromkeys(files) for part in by_file.get(file, ())]
        if parts:
            broken[own] = CatalogError(parts)
    found = replace(
        catalog,
        profiles={name: one for name, one in catalog.profiles.items() if f"profiles/{name}.yaml" not in broken},
        components={name: one for name, one in catalog.components.items() if f"components/{name}.yaml" not in broken},
        bases={name: one for name, one in catalog.bases.items() if f"bases/{name}.yaml" not in broken},
        problems=problems,
        broken=broken,
    )
    if not found.profiles:
        raise CatalogError(problems)
    return found


class _Reader:
    """Reads files and collects problems, so that one run reports all of them."""

    def __init__(self, images: Path, own: Path | None = None) -> None:
        # The user's folder comes first: its files replace the built-in ones.
        self.folders = {**({str(shown_path(own, Path.cwd())): own} if own else {}), BUILT_IN: images}
        self.problems: list[UsageError] = []
        # Paths of the faults, by file.
        self.noted: dict[str, list[tuple[object, ...]]] = {}
        # Documents as they are in their files, and merged with what they extend.
        self.written: dict[str, YamlDocument] = {}
        self.documents: dict[str, YamlDocument] = {}
        self.listed: dict[str, list[str]] = {}
        self.own_files: dict[str, str] = {}

    def stop_if_shared(self) -> None:
        """Raise all problems if one is in a file that every profile needs."""
        if not all(map(self.of_profiles, self.problems)):
            raise CatalogError(self.problems)

    def of_profiles(self, part: UsageError) -> str:
        """Return the file of a problem (its name below images/) if only some profiles need it, else ""."""
        for shown in self.folders:
            if part.where.startswith(f"{shown}/") and (match := OF_PROFILES.fullmatch(part.where[len(shown) + 1 :])):
                return match[1]
        return ""

    def has(self, name: str) -> bool:
        """Whether a file exists, by its name below images/."""
        return os.path.lexists(self.at(name)[1])

    def at(self, name: str) -> tuple[str, Path]:
        """Return the name in messages and the path of a file, by its name below images/."""
        found = ((f"{shown}/{name}", folder / name) for shown, folder in self.folders.items())
        shown, path = next((pair for pair in found if os.path.lexists(pair[1])), (f"{BUILT_IN}/{name}", None))
        if not shown.startswith(f"{BUILT_IN}/"):
            self.own_files[name] = shown
        return shown, path or self.folders[BUILT_IN] / name

    def note(self, file: str, fault: FaultError) -> None:
        """Record a fault in a file that was read."""
        self.noted.setdefault(file, []).append(fault.path)
        what = ": ".join(filter(None, (".".join(map(str, fault.path)), fault.what)))
        self.problems.append(problem(self.documents[file].where(fault.path), what, fault.hint))

    def folder(
        self,
        name: str,
        model: type[M],
        fault: Callable[[str], str] = lambda _: "",
        leave: tuple[str, ...] = (),
        read: Callable[[str], YamlDocument] | None = None,
    ) -> dict[str, M]:
        """Read every YAML file of a folder into {stem: model}. `fault` returns why a stem is not allowed.

        The stems in `leave` are skipped. `read` replaces `document`.
        """
        found: dict[str, M] = {}
        adapter = TypeAdapter(model)
        self.listed[name] = self._listed(name)
        for file in self.listed[name]:
            stem = file.removesuffix(".yaml")
            if stem in leave:
                continue
            what, _, hint = fault(stem).partition("; ")
            if what:
                self.problems.append(problem(self.at(f"{name}/{file}")[0], what, hint))
            value = self.file(f"{name}/{file}", model, read, adapter)
            if value is not None:
                found[stem] = value
        if not found and not self.problems:
            self.problems.append(problem(f"images/{name}", "no file found", "at least one is needed"))
        return found

    def _listed(self, name: str) -> list[str]:
        """Return the names of the YAML files in a folder. Any other file there is reported, since it is not read."""
        found: set[str] = set()
        for shown, top in self.folders.items():
            folder = top / name
            try:
                paths = sorted(folder.iterdir()) if folder.is_dir() else []
            except OSError as error:
                self.problems.append(problem(f"{shown}/{name}", f"cannot be read: {error}", "check its permissions"))
                continue
            for path in paths:
                if LEFT.fullmatch(path.name) or path.name.startswith("README"):
                    continue
                if path.suffix == ".yaml":
                    found.add(path.name)
                    continue
                what, hint = "folders are not read here", "move its files one level up"
                if not path.is_dir():
                    stem = path.stem if path.suffix.lower() in {".yml", ".yaml"} else path.name
                    wanted = path.with_name(f"{stem}.yaml")
                    beside = f"; there is a {wanted.name} already, so remove one of them" if wanted.exists() else ""
                    what = "only files named .yaml are read here"
                    hint = f"name it {wanted.name}, or keep it elsewhere{beside}"
                self.problems.append(problem(f"{shown}/{name}/{path.name}", what, hint))
        return sorted(found)

    def document(self, name: str) -> YamlDocument:
        """Read one file once, by its name below images/. Raises `UsageError` like `read_yaml`."""
        if name not in self.written:
            shown, path = self.at(name)
            self.written[name] = read_yaml(path, shown)
        return self.written[name]

    def extended(self, name: str) -> YamlDocument:
        """Read a profile, merged with what it extends. Raises `UsageError` like `document` and `extended`."""
        own = self.document(name)
        if not isinstance(own.value, dict) or "extends" not in own.value:
            return own
        known: dict[str, YamlDocument] = {}
        for file in self.listed["profiles"]:
            with suppress(UsageError):  # its own entry reports it
                known[file.removesuffix(".yaml")] = self.document(f"profiles/{file}")
        return extended(name.removeprefix("profiles/").removesuffix(".yaml"), known)

    def file(
        self,
        name: str,
        model: type[M],
        read: Callable[[str], YamlDocument] | None = None,
        adapter: TypeAdapter[M] | None = None,
    ) -> M:
        """Read one file as the type `model` (`adapter` is its type adapter), and record problems.

        Returns None after a problem. After unknown keys only, returns the value without them, so that its references
        are still checked.
        """
        try:
            document = self.documents[name] = (read or self.document)(name)
        except UsageError as error:
            self.problems.append(problem(error.where, error.what, error.hint))
            return cast("M", None)  # not used: `load_catalog` raises, or leaves the file out
        value, found = _validated(document.value, model, adapter or TypeAdapter(model))
        for fault in found[:MOST_PROBLEMS]:
            self.note(name, fault)
        if len(found) > MOST_PROBLEMS:
            what = f"{len(found) - MOST_PROBLEMS} more problems"
            self.problems.append(problem(self.at(name)[0], what, "fix those above first: is it the right file?"))
        return cast("M", value)

    def table(self, name: str) -> Compatibility:
        """Read the built-in table, merged with the user's; None after a problem, like `file`."""
        before = len(self.problems)
        built_in = self.file(
            name, Compatibility, lambda file: read_yaml(self.folders[BUILT_IN] / file, f"{BUILT_IN}/{file}")
        )
        if self.at(name)[0].startswith(f"{BUILT_IN}/"):
            return built_in
        own = self.file(name, Compatibility)
        try:
            return built_in if len(self.problems) > before else own.over(built_in)
        except FaultError as error:
            self.note(name, error)
            return built_in


# A file name below images/, and a fault in it.
Found = tuple[str, FaultError]


def _validated(value: object, model: object, adapter: TypeAdapter[Any]) -> tuple[Any, list[FaultError]]:
    """Return the value as `model`, without unknown keys, and all its faults. The value is None after other faults."""
    try:
        return adapter.validate_python(value), []
    except ValidationError as error:
        found = list(faults(error, model))
        kinds = {detail["type"] for detail in error.errors(include_url=False)}
        if kinds != {"extra_forbidden"}:
            return None, found
    rest: Any = deepcopy(value)
    for fault in found:
        *outer, key = fault.path
        # An aliased value is one object: the first fault has already removed its key.
        reduce(lambda part, step: part[step], outer, rest).pop(key, None)
    with suppress(ValidationError):  # an unknown key may be a misspelt required key
        return adapter.validate_python(rest), found
    return None, found


def cross_check(catalog: Catalog, unread: Collection[str]) -> Iterator[Found]:
    """Yield references to names that no file defines.

    `unread` are existing files (`components/ray.yaml`) that could not be read. Their names count as defined.
    """
    names = {file.removesuffix(".yaml") for file in unread}
    bases = {*catalog.bases, *(name.removeprefix("bases/") for name in names if name.startswith("bases/"))}
    parts = {*catalog.components, *(name.removeprefix("components/") for name in names if name.startswith("compo"))}
    for name, profile in catalog.profiles.items():
        file, cann = f"profiles/{name}.yaml", profile.target.cann
        if cann not in bases:
            yield file, FaultError(f"no CANN line {cann!r}", did_you_mean(cann, bases), ("target", "cann"))
        for position, pin in enumerate(profile.components):
            for what, hint, *key in _pin_faults(pin, catalog, parts):
                yield file, FaultError(what, hint, ("components", position, *key))
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
    """Yield substitutes for components that the profile does not pin as wheels, and an unknown replacing profile."""
    pinned = {pin.name for pin in profile.components if pin.version}
    wheels = {name for name in pinned if isinstance(catalog.components.get(name), Wheels)}
    for position, one in enumerate(profile.substitutes):
        if one.name not in wheels:
            what = f"{one.name} is not a wheel that this profile pins"
            yield file, FaultError(what, did_you_mean(one.name, wheels), ("substitutes", position, "name"))
    if profile.replaced and profile.replaced.by not in catalog.profiles:
        what = f"no profile {profile.replaced.by!r}"
        yield file, FaultError(what, did_you_mean(profile.replaced.by, catalog.profiles), ("replaced", "by"))


def _references(component: Component, catalog: Catalog) -> Iterator[tuple[Location, str, str, Collection[str]]]:
    """Yield (path, kind, name, known names) of each reference to a name in another file."""
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
    """Yield links to paths that the other component does not export. They would be dangling in the image."""
    for link, target in component.tree_links.items() if isinstance(component, FromSource) else ():
        other, _, inside = target.partition("/")
        paths = getattr(catalog.components.get(other), "paths", ())
        if paths and not any(f"{inside}/".startswith(f"{path.rstrip('/')}/") for path in paths):
            what = f"{target} is in no image: of {other} only {', '.join(paths)} is exported"
            hint = f"add it to `paths` in images/components/{other}.yaml"
            yield f"components/{name}.yaml", FaultError(what, hint, ("tree_links", link))


def _pin_faults(pin: Pin, catalog: Catalog, known: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield (what is wrong, what to do, and maybe the key) for a profile's pin."""
    component = catalog.components.get(pin.name)
    if pin.name not in known:
        yield f"no component {pin.name!r}", _new_component(pin.name, known), "name"
    if component is None:
        return
    wanted = ["version"] if isinstance(component, Wheels) else ["commit", "release"]
    wanted = [] if isinstance(component, System) else wanted
    unread = [name for name in ("version", "commit", "release") if getattr(pin, name) and name not in wanted]
    if unread:
        takes = f"it takes {', '.join(wanted)}" if wanted else "remove it: its version follows from the base"
        yield f"{pin.name} is of kind {component.kind}: no {', no '.join(unread)}", takes
    elif isinstance(component, FromSource) and bool(pin.commit) == bool(pin.release):
        yield f"{pin.name} is of kind {component.kind}", "name its commit, or a release instead"
    elif isinstance(component, FromSource) and pin.commit and pin.commit not in component.revisions:
        file = catalog.file(f"components/{pin.name}.yaml")
        yield f"nothing is known of {pin.name} {pin.commit}", f"add it to revisions in {file}"


def _new_component(word: str, known: Collection[str]) -> str:
    """Return what to do about an unknown component: create it, or use an existing one."""
    other = did_you_mean(word, known, f"take one of {', '.join(sorted(known))}")
    return f"make images/components/{canonicalize_name(word)}.yaml (docs/reference/fields.md), or {other}"


def _misnamed(catalog: Catalog) -> Iterator[Found]:
    """Yield missing chips, and base files that are named after another CANN version."""
    for chip in Chip:
        if chip not in catalog.chips:
            yield "chips.yaml", FaultError(f"chip {chip} is missing", "add it, as the others are")
    for name, line in catalog.bases.items():
        if line.cann != name:
            what = f"{line.cann!r} is not in the file's name, which is {name!r}"
            yield f"bases/{name}.yaml", FaultError(what, f"correct it, or name the file {line.cann}.yaml", ("cann",))
