"""Read images/ into a `Catalog`: every file checked against its model, all errors at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from cannery.core.catalog import (
    BaseLine,
    Catalog,
    ChipAccess,
    Host,
    Index,
    Pin,
    Profile,
    Registries,
    StandIn,
    Tools,
)
from cannery.core.catalog_errors import key_path, sentence
from cannery.core.compatibility import Compatibility
from cannery.core.component import Closed, Component
from cannery.core.errors import UsageError
from cannery.core.fields import component_name_fault, profile_name_fault, yaml_kind
from cannery.core.words import Chip, ComponentKind, did_you_mean, nearest
from cannery.edge.yaml_file import YamlDocument, read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=Closed)
# What is no file of the catalog and may lie beside them: hidden files, and what editors and patch leave.
LEFT = re.compile(r"\..*|.*(~|\.orig|\.rej)|#.*#")


def load_catalog(images: Path) -> Catalog:
    """Read every catalog file below `images`. Raises one `UsageError` that lists all problems with file and line."""
    reader = _Reader(images)
    catalog = Catalog.model_construct(
        profiles=reader.folder("profiles", Profile, profile_name_fault),
        chips=reader.table("chips.yaml", ChipAccess),
        components=reader.folder("components", Component, component_name_fault),
        bases=reader.folder("bases", BaseLine, leave=("registries",)),
        registries=reader.file("bases/registries.yaml", Registries),
        indexes=reader.table("indexes.yaml", Index),
        hosts=reader.table("hosts.yaml", Host),
        tools=reader.file("tools.yaml", Tools),
        standin=reader.file("standin/recipe.yaml", StandIn),
        compatibility=reader.file("compatibility.yaml", Compatibility),
    )
    if not reader.problems:
        reader.problems += _crossed(catalog, reader.documents)
    if reader.problems:
        head = "" if len(reader.problems) == 1 else f"{len(reader.problems)} problems in images/\n"
        raise UsageError(head + "\n".join(reader.problems))
    return catalog


class _Reader:
    """Reads files and collects problems, so that a user sees all of them in one run."""

    def __init__(self, images: Path) -> None:
        self.images = images
        self.problems: list[str] = []
        self.documents: dict[str, YamlDocument] = {}

    def folder(
        self, name: str, model: type[M], fault: Callable[[str], str] = lambda _: "", leave: tuple[str, ...] = ()
    ) -> dict[str, M]:
        """Read every YAML file of a folder into {stem: model}; names are file names, `fault` says what is wrong in one.

        The stems in `leave` are another reader's.
        """
        found: dict[str, M] = {}
        for path in self._listed(name):
            if path.stem in leave:
                continue
            wrong = fault(path.stem)
            if wrong:
                self.problems.append(f"images/{name}/{path.name}: {wrong}")
            value = self.file(f"{name}/{path.name}", model)
            if value is not None:
                found[path.stem] = value
        if not found and not self.problems:
            self.problems.append(f"images/{name}: no file found")
        return found

    def _listed(self, name: str) -> Iterator[Path]:
        """Give the YAML files of a folder; whatever else lies there is a problem, for it would be passed over."""
        folder = self.images / name
        try:
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            self.problems.append(f"images/{name}: cannot be read: {error}")
            return
        for path in paths:
            if LEFT.fullmatch(path.name):
                continue
            if path.suffix == ".yaml":
                yield path
            elif not path.name.startswith("README"):
                self.problems.append(f"images/{name}/{path.name}: {_unread(path)}")

    def file(self, name: str, model: type[M]) -> M:
        """Read one file into `model`; after a problem the value is unusable and the problem is noted."""
        document = self._read(name)
        if document is None:
            return None  # type: ignore[return-value] # the caller raises before anything uses it
        return self._validate(document, (), document.value, model)

    def table(self, name: str, model: type[M]) -> dict[str, M]:
        """Read one file that holds a mapping of names to `model`."""
        document = self._read(name)
        if document is None:
            return {}
        if not isinstance(document.value, dict):
            self.problems.append(f"{document.name}:1: a mapping is wanted here")
            return {}
        return {key: self._validate(document, (key,), value, model) for key, value in document.value.items()}

    def _read(self, name: str) -> YamlDocument | None:
        try:
            document = read_yaml(self.images / name, f"images/{name}")
        except UsageError as error:
            self.problems.append(str(error))
            return None
        self.documents[name] = document
        return document

    def _validate(self, document: YamlDocument, at: tuple[str | int, ...], value: Any, model: type[M]) -> M:  # noqa: ANN401 - YAML
        try:
            return model.model_validate(value)
        except ValidationError as error:
            lines = (_problem(document, at, detail, model) for detail in error.errors())
            self.problems += [line for line in lines if line]
            return None  # type: ignore[return-value] # as above


def _unread(path: Path) -> str:
    """Say why a file that is not called *.yaml may not lie in a folder of the catalog."""
    if path.is_dir():
        return "a folder is not read here: put its files beside it"
    wanted = path.with_name(f"{path.stem if path.suffix.lower() in {'.yml', '.yaml'} else path.name}.yaml")
    beside = f"; there is a {wanted.name} already, so remove one of them" if wanted.exists() else ""
    return f"only files named .yaml are read here: name it {wanted.name}, or keep it elsewhere{beside}"


def _problem(document: YamlDocument, at: tuple[str | int, ...], detail: ErrorDetails, model: type[Closed]) -> str:
    """Return the line for one fault: file:line, field, and what is wrong; "" when another line says it."""
    location = at + key_path(detail)
    message = sentence(detail, model)
    kind = yaml_kind(detail["input"])
    if kind is not None and "quote it" in message and location in document.texts:
        written = document.texts[location]  # YAML's value has lost what was meant: 3.10 has become 3.1
        message = f'unquoted {written} is {kind} to YAML; quote it: "{written}"'
    field = ".".join(str(part) for part in location) or "the file"
    return f"{document.where(location)}: {field}: {message}" if message else ""


def _crossed(catalog: Catalog, documents: dict[str, YamlDocument]) -> list[str]:
    """Names that one file uses and another has to define."""
    problems: list[str] = []

    def need(file: str, location: tuple[str | int, ...], word: str, known: dict[str, Any], what: str) -> None:
        if word not in known:
            where = documents[file].where(location)
            hint = _new_component(word, known) if what == "component" else did_you_mean(word, known)
            problems.append(f"{where}: {'.'.join(map(str, location))}: no {what} {word!r}; {hint}")

    for name, profile in catalog.profiles.items():
        file = f"profiles/{name}.yaml"
        need(file, ("target", "cann"), profile.target.cann, catalog.bases, "CANN line")
        for position, pin in enumerate(profile.components):
            need(file, ("components", position, "name"), pin.name, catalog.components, "component")
            found = catalog.components.get(pin.name)
            fault = _pin_fault(pin, found) if found is not None else ""
            if fault:
                problems.append(f"{documents[file].where(('components', position))}: components.{position}: {fault}")
    for name, component in catalog.components.items():
        if component.index is not None:
            need(f"components/{name}.yaml", ("index",), component.index, catalog.indexes, "index")
        for host in component.hosts:
            need(f"components/{name}.yaml", ("hosts", host), host, catalog.hosts, "git host")
        for position, other in enumerate(component.after):
            need(f"components/{name}.yaml", ("after", position), other, catalog.components, "component")
    return problems + _misnamed(catalog)


def _pin_fault(pin: Pin, component: Component) -> str:
    """Say what of a profile's pin does not go with the component's kind, or is not known there; "" when all does."""
    given = [name for name in ("version", "commit", "release", "extras") if getattr(pin, name)]
    wanted = {ComponentKind.SYSTEM: (), ComponentKind.WHEELS: ("version", "extras")}.get(
        component.kind, ("commit", "release", "extras")
    )
    unread = [name for name in given if name not in wanted]
    if unread:
        return f"{pin.name} is of kind {component.kind}: no {', no '.join(unread)}"
    if not component.kind.is_source:
        return ""
    if bool(pin.commit) == bool(pin.release):
        return f"{pin.name} is of kind {component.kind}: name its commit, or the release in its place"
    word, known = (pin.commit, component.revisions) if pin.commit else (pin.release, component.releases)
    if word in known:
        return ""
    field = "revisions" if pin.commit else "releases"
    return f"nothing is known of {pin.name} {word}: add it to {field} in images/components/{pin.name}.yaml"


def _new_component(word: str, known: dict[str, Any]) -> str:
    """Say what to do about a component that has no file: make it, or take one that is there."""
    near = nearest(word, sorted(known))
    other = f"did you mean {' or '.join(near)}?" if near else f"take one of {', '.join(sorted(known))}"
    return f"make images/components/{canonicalize_name(word)}.yaml (docs/profiles.md), or {other}"


def _misnamed(catalog: Catalog) -> list[str]:
    """Chips that are missing, and bases whose file name says another CANN than the file."""
    chips = [f"images/chips.yaml:1: chip {chip} is missing" for chip in Chip if chip not in catalog.chips]
    bases = [
        f"images/bases/{name}.yaml: cann is {line.cann!r}, the file name says {name!r}"
        for name, line in catalog.bases.items()
        if line.cann != name
    ]
    return chips + bases
