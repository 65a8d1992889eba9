"""Read images/ into a `Catalog`: every file checked against its model, all errors at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from cannery.core.catalog import (
    BaseLine,
    Catalog,
    ChipAccess,
    Closed,
    Compatibility,
    Component,
    Index,
    Profile,
    Registries,
    StandIn,
    Tools,
    yaml_kind,
)
from cannery.core.errors import UsageError
from cannery.core.words import Chip, did_you_mean
from cannery.edge.yaml_file import YamlDocument, read_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=Closed)


def load_catalog(images: Path) -> Catalog:
    """Read every catalog file below `images`. Raises one `UsageError` that lists all problems with file and line."""
    reader = _Reader(images)
    catalog = Catalog.model_construct(
        profiles=reader.folder("profiles", Profile),
        chips=reader.table("chips.yaml", ChipAccess),
        components=reader.folder("components", Component),
        bases=reader.folder("bases", BaseLine, leave=("registries",)),
        registries=reader.file("bases/registries.yaml", Registries),
        indexes=reader.table("indexes.yaml", Index),
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

    def folder(self, name: str, model: type[M], leave: tuple[str, ...] = ()) -> dict[str, M]:
        """Read every YAML file of a folder into {stem: model}; names are file names."""
        found: dict[str, M] = {}
        for path in sorted((self.images / name).glob("*.yaml")):
            if path.stem in leave:
                continue
            value = self.file(f"{name}/{path.name}", model)
            if value is not None:
                found[path.stem] = value
        if not found and not self.problems:
            self.problems.append(f"images/{name}: no file found")
        return found

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
            self.problems += [_problem(document, at, detail, model) for detail in error.errors()]
            return None  # type: ignore[return-value] # as above


def _problem(document: YamlDocument, at: tuple[str | int, ...], detail: ErrorDetails, model: type[Closed]) -> str:
    location = at + tuple(detail["loc"])
    field = ".".join(str(part) for part in location) or "the file"
    message = detail["msg"].removeprefix("Value error, ")
    kind = yaml_kind(detail["input"])
    if kind is not None and "quote it" in message and location in document.texts:
        written = document.texts[location]  # YAML's value has lost what was meant: 3.10 has become 3.1
        message = f'unquoted {written} is {kind} to YAML; quote it: "{written}"'
    if detail["type"] == "extra_forbidden":
        message = f"unknown key; {did_you_mean(str(location[-1]), _keys(model, detail['loc'][:-1]))}"
    return f"{document.where(location)}: {field}: {message}"


def _keys(model: type[Closed], path: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return the keys that the model at `path` below `model` knows (best effort, for a hint)."""
    current: type[Closed] = model
    for part in path:
        # Positions in lists and names in tables of models are not fields: the model below them is already at hand.
        field = current.model_fields.get(str(part))
        below = _model_of(field.annotation) if field is not None else None
        current = below or current
    return tuple(field.alias or name for name, field in current.model_fields.items())


def _model_of(annotation: object) -> type[Closed] | None:
    """Return the model in `tuple[Model, ...]`, `dict[str, Model]`, `Model | None` or `Model`."""
    if isinstance(annotation, type) and issubclass(annotation, Closed):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_of(part))), None)


def _crossed(catalog: Catalog, documents: dict[str, YamlDocument]) -> list[str]:
    """Names that one file uses and another has to define."""
    problems: list[str] = []

    def need(file: str, location: tuple[str | int, ...], word: str, known: dict[str, Any], what: str) -> None:
        if word not in known:
            where = documents[file].where(location)
            problems.append(f"{where}: {'.'.join(map(str, location))}: no {what} {word!r}; {did_you_mean(word, known)}")

    for name, profile in catalog.profiles.items():
        file = f"profiles/{name}.yaml"
        need(file, ("target", "cann"), profile.target.cann, catalog.bases, "CANN line")
        for position, pin in enumerate(profile.components):
            need(file, ("components", position, "name"), pin.name, catalog.components, "component")
    for name, component in catalog.components.items():
        if component.index is not None:
            need(f"components/{name}.yaml", ("index",), component.index, catalog.indexes, "index")
        if canonicalize_name(name) != name:
            problems.append(f"images/components/{name}.yaml: name the file {canonicalize_name(name)}.yaml")
    return problems + _misnamed(catalog)


def _misnamed(catalog: Catalog) -> list[str]:
    """Chips that are missing, and bases whose file name says another CANN than the file."""
    chips = [f"images/chips.yaml:1: chip {chip} is missing" for chip in Chip if chip not in catalog.chips]
    bases = [
        f"images/bases/{name}.yaml: cann is {line.cann!r}, the file name says {name!r}"
        for name, line in catalog.bases.items()
        if line.cann != name
    ]
    return chips + bases
