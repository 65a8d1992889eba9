"""Read images/ into a `Catalog`: every file checked against its model, all errors at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from cannery.catalog.catalog import (
    BaseLine,
    Catalog,
    ChipAccess,
    Host,
    Index,
    Profile,
    Registries,
    StandIn,
    Tools,
)
from cannery.catalog.compatibility import Compatibility
from cannery.catalog.component import Closed, Component
from cannery.catalog.cross_checks import cross_check
from cannery.catalog.drivers import Drivers
from cannery.catalog.errors import Said, key_path, not_a_text, sentence
from cannery.catalog.fault import CatalogError, problem, split_problem
from cannery.catalog.fields import (
    chip_name_fault,
    component_name_fault,
    host_name_fault,
    index_name_fault,
    profile_name_fault,
    yaml_kind,
)
from cannery.catalog.io.yaml_file import read_yaml
from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from cannery.catalog.yaml_text import YamlDocument

M = TypeVar("M", bound=Closed)
# What is no file of the catalog and may lie beside them: hidden files, and what editors and patch leave.
LEFT = re.compile(r"\..*|.*(~|\.orig|\.rej)|#.*#")
# Of one file; a file of another kind altogether has thousands, and each costs a search for the nearest word.
MOST_PROBLEMS = 30
MANY = "mend those above first: is it the file that is meant?"


def load_catalog(images: Path) -> Catalog:
    """Read every catalog file below `images`. Raises one `CatalogError` that has all problems with file and line."""
    reader = _Reader(images)
    catalog = Catalog.model_construct(
        profiles=reader.folder("profiles", Profile, profile_name_fault),
        chips=reader.table("chips.yaml", ChipAccess, chip_name_fault),
        components=reader.folder("components", Component, component_name_fault),
        bases=reader.folder("bases", BaseLine, leave=("registries",)),
        registries=reader.file("bases/registries.yaml", Registries),
        indexes=reader.table("indexes.yaml", Index, index_name_fault),
        hosts=reader.table("hosts.yaml", Host, host_name_fault),
        tools=reader.file("tools.yaml", Tools),
        standin=reader.file("standin/recipe.yaml", StandIn),
        compatibility=reader.file("compatibility.yaml", Compatibility),
        drivers=reader.file("drivers.yaml", Drivers),
    )
    if not reader.problems:
        reader.problems += cross_check(catalog, reader.documents)
    if reader.problems:
        raise CatalogError(reader.problems)
    return catalog


class _Reader:
    """Reads files and collects problems, so that a user sees all of them in one run."""

    def __init__(self, images: Path) -> None:
        self.images = images
        self.problems: list[UsageError] = []
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
                self.problems.append(split_problem(f"images/{name}/{path.name}", wrong))
            value = self.file(f"{name}/{path.name}", model)
            if value is not None:
                found[path.stem] = value
        if not found and not self.problems:
            self.problems.append(problem(f"images/{name}", "no file found", "one is needed at least"))
        return found

    def _listed(self, name: str) -> Iterator[Path]:
        """Give the YAML files of a folder; whatever else lies there is a problem, for it would be passed over."""
        folder = self.images / name
        try:
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            self.problems.append(problem(f"images/{name}", f"cannot be read: {error}", "see to its permissions"))
            return
        for path in paths:
            if LEFT.fullmatch(path.name):
                continue
            if path.suffix == ".yaml":
                yield path
            elif not path.name.startswith("README"):
                self.problems.append(problem(f"images/{name}/{path.name}", *_unread(path)))

    def file(self, name: str, model: type[M]) -> M:
        """Read one file into `model`; after a problem the value is unusable and the problem is noted."""
        document = self._read(name)
        if document is None:
            return None  # type: ignore[return-value] # the caller raises before anything uses it
        return self._validate(document, (), document.value, model)

    def table(self, name: str, model: type[M], fault: Callable[[str], str]) -> dict[str, M]:
        """Read one file that holds a mapping of names to `model`; `fault` says what is wrong in a name, or ""."""
        document = self._read(name)
        if document is None:
            return {}
        if not isinstance(document.value, dict):
            hint = "write NAME: {" + ", ".join(f"{key}: …" for key in model.model_fields) + "}"
            self.problems.append(problem(f"{document.name}:1", "a mapping is wanted here", hint))
            return {}
        for key in document.value:
            wrong = not_a_text(key) if not isinstance(key, str) else fault(key)
            if wrong:
                where = document.where((str(key),))
                self.problems.append(split_problem(where, wrong) if isinstance(wrong, str) else problem(where, *wrong))
        return {str(key): self._validate(document, (str(key),), value, model) for key, value in document.value.items()}

    def _read(self, name: str) -> YamlDocument | None:
        try:
            document = read_yaml(self.images / name, f"images/{name}")
        except UsageError as error:
            self.problems.append(problem(error.where, error.what, error.hint))
            return None
        self.documents[name] = document
        return document

    def _validate(self, document: YamlDocument, at: tuple[str | int, ...], value: Any, model: type[M]) -> M:  # noqa: ANN401 - YAML
        try:
            return model.model_validate(value)
        except ValidationError as error:
            details = error.errors(include_url=False)
            found = (_problem(document, at, detail, model) for detail in details[:MOST_PROBLEMS])
            self.problems += [one for one in found if one is not None]
            if len(details) > MOST_PROBLEMS:
                self.problems.append(problem(document.name, f"{len(details) - MOST_PROBLEMS} more problems", MANY))
            return None  # type: ignore[return-value] # as above


def _unread(path: Path) -> tuple[str, str]:
    """Say why a file that is not called *.yaml may not lie in a folder of the catalog, and what to do."""
    if path.is_dir():
        return "a folder is not read here", "put its files beside it"
    wanted = path.with_name(f"{path.stem if path.suffix.lower() in {'.yml', '.yaml'} else path.name}.yaml")
    beside = f"; there is a {wanted.name} already, so remove one of them" if wanted.exists() else ""
    return "only files named .yaml are read here", f"name it {wanted.name}, or keep it elsewhere{beside}"


def _problem(
    document: YamlDocument, at: tuple[str | int, ...], detail: ErrorDetails, model: type[Closed]
) -> UsageError | None:
    """Return the problem of one fault: file:line, field, what is wrong, what to do; None when another one says it."""
    location = at + key_path(detail)
    said = sentence(detail, model)
    kind = yaml_kind(detail["input"])
    if kind is not None and "quote it" in said.hint and location in document.texts:
        written = document.texts[location]  # YAML's value has lost what was meant: 3.10 has become 3.1
        said = Said(f"unquoted {written} is {kind} to YAML", f'quote it: "{written}"')
    field = ".".join(str(part) for part in location) or "the file"
    return problem(document.where(location), f"{field}: {said.what}", said.hint) if said.what else None
