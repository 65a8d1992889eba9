"""Read images/ into a `Catalog`: every file checked against its model, all errors at once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from cannery.catalog.catalog import BaseLine, Catalog, ChipAccess, Host, Index, Profile, Registries, StandIn, Tools
from cannery.catalog.compatibility import Compatibility
from cannery.catalog.component import Component
from cannery.catalog.cross_checks import cross_check
from cannery.catalog.drivers import Drivers
from cannery.catalog.errors import CatalogError, faults, problem
from cannery.catalog.fields import ChipName, IndexName, Name, component_name_fault, profile_name_fault, yaml_kind
from cannery.catalog.io.yaml_file import read_yaml
from cannery.catalog.published import Published
from cannery.catalog.versions import without_build
from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cannery.catalog.errors import Fault
    from cannery.catalog.yaml_text import YamlDocument

M = TypeVar("M")
# What is no file of the catalog and may lie beside them: hidden files, and what editors and patch leave.
LEFT = re.compile(r"\..*|.*(~|\.orig|\.rej)|#.*#")
# Files that only the profiles that name them need; the catalog is of no use without any of the others.
OWN = re.compile(r"images/((?:profiles|components|bases(?!/registries\.yaml))/[^:]+)(?::\d+)?")
# Of one file; a file of another kind has thousands, and each costs a search for the nearest word.
MOST_PROBLEMS = 30
MANY = "fix those above first: is it the right file?"


def load_catalog(images: Path) -> Catalog:
    """Read every catalog file below `images`. Profiles that use a broken file are left out, with their errors.

    Raises one `CatalogError` that has all problems with file and line where a file is broken that every profile needs,
    or where no profile is left.
    """
    reader = _Reader(images)
    catalog = Catalog(
        profiles=reader.folder("profiles", Profile, profile_name_fault),
        chips=reader.file("chips.yaml", dict[ChipName, ChipAccess]),
        components=reader.folder("components", cast("type[Component]", Component), component_name_fault),
        bases=reader.folder("bases", BaseLine, leave=("registries",)),
        registries=reader.file("bases/registries.yaml", Registries),
        indexes=reader.file("indexes.yaml", dict[IndexName, Index]),
        hosts=reader.file("hosts.yaml", dict[Name, Host]),
        tools=reader.file("tools.yaml", Tools),
        standin=reader.file("standin/recipe.yaml", StandIn),
        compatibility=reader.file("compatibility.yaml", Compatibility),
        drivers=reader.file("drivers.yaml", Drivers),
        hashes=reader.file("hashes.yaml", dict[IndexName, Published]) if (images / "hashes.yaml").exists() else {},
    )
    reader.stop_if_shared()
    for fault in cross_check(catalog, [match[1] for part in reader.problems if (match := OWN.fullmatch(part.where))]):
        reader.note(fault.file, fault.path, fault.what, fault.hint)
    reader.stop_if_shared()
    return _usable(catalog, tuple(reader.problems)) if reader.problems else catalog


def _usable(catalog: Catalog, problems: tuple[UsageError, ...]) -> Catalog:
    """Return the catalog without what is broken. Raises `CatalogError` where no profile is left."""
    by_file: dict[str, list[UsageError]] = {}
    for part in problems:
        match = OWN.fullmatch(part.where)
        by_file.setdefault(match[1] if match else "", []).append(part)
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
    """Reads files and collects problems, so that a user sees all of them in one run."""

    def __init__(self, images: Path) -> None:
        self.images = images
        self.problems: list[UsageError] = []
        self.documents: dict[str, YamlDocument] = {}

    def stop_if_shared(self) -> None:
        """Raise all problems where one is in a file that every profile needs."""
        if not all(OWN.fullmatch(part.where) for part in self.problems):
            raise CatalogError(self.problems)

    def note(self, file: str, path: tuple[str | int, ...], what: str, hint: str) -> None:
        """Note what is wrong at `path` in a file that was read."""
        where = self.documents[file].where(path)
        self.problems.append(problem(where, ": ".join(filter(None, (".".join(map(str, path)), what))), hint))

    def folder(
        self, name: str, model: type[M], fault: Callable[[str], str] = lambda _: "", leave: tuple[str, ...] = ()
    ) -> dict[str, M]:
        """Read every YAML file of a folder into {stem: model}; names are file names, `fault` finds a wrong name.

        The stems in `leave` are read elsewhere.
        """
        found: dict[str, M] = {}
        adapter = TypeAdapter(model)
        for path in self._listed(name):
            if path.stem in leave:
                continue
            what, _, hint = fault(path.stem).partition("; ")
            if what:
                self.problems.append(problem(f"images/{name}/{path.name}", what, hint))
            value = self.file(f"{name}/{path.name}", model, adapter)
            if value is not None:
                found[path.stem] = value
        if not found and not self.problems:
            self.problems.append(problem(f"images/{name}", "no file found", "one is needed at least"))
        return found

    def _listed(self, name: str) -> Iterator[Path]:
        """Give the YAML files of a folder; any other file there is a problem, since it would not be read."""
        folder = self.images / name
        try:
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            self.problems.append(problem(f"images/{name}", f"cannot be read: {error}", "check its permissions"))
            return
        for path in paths:
            if LEFT.fullmatch(path.name):
                continue
            if path.suffix == ".yaml":
                yield path
            elif not path.name.startswith("README"):
                self.problems.append(problem(f"images/{name}/{path.name}", *_unread(path)))

    def file(self, name: str, model: type[M], adapter: TypeAdapter[M] | None = None) -> M:
        """Read one file into `model`, a type (`adapter`: the same, made once for many files).

        The value is None after a problem, which is noted.
        """
        try:
            document = self.documents[name] = read_yaml(self.images / name, f"images/{name}")
            value = (adapter or TypeAdapter(model)).validate_python(document.value)
        except UsageError as error:
            self.problems.append(problem(error.where, error.what, error.hint))
        except ValidationError as error:
            found = list(faults(error, model))
            for fault in found[:MOST_PROBLEMS]:
                self.note(name, fault.path, *_as_written(fault, document))
            if len(found) > MOST_PROBLEMS:
                what = f"{len(found) - MOST_PROBLEMS} more problems"
                self.problems.append(problem(f"images/{name}", what, MANY))
        else:
            return value
        return None  # type: ignore[return-value] # no such value is used: `load_catalog` raises, or leaves it out


def _unread(path: Path) -> tuple[str, str]:
    """Return why a file that is not called *.yaml is refused in a folder of the catalog, and what to do."""
    if path.is_dir():
        return "a folder is not read here", "put its files beside it"
    wanted = path.with_name(f"{path.stem if path.suffix.lower() in {'.yml', '.yaml'} else path.name}.yaml")
    beside = f"; there is a {wanted.name} already, so remove one of them" if wanted.exists() else ""
    return "only files named .yaml are read here", f"name it {wanted.name}, or keep it elsewhere{beside}"


def _as_written(fault: Fault, document: YamlDocument) -> tuple[str, str]:
    """Return what is wrong and what to do; a scalar that needs quotes is shown as the file has it.

    YAML's value has lost what was meant: 3.10 has become 3.1.
    """
    kind, written = yaml_kind(fault.value), document.texts.get(fault.path)
    if kind is None or written is None or "quote it" not in fault.hint:
        return fault.what, fault.hint
    return f"unquoted {written} is {kind} to YAML", f'quote it: "{written}"'
