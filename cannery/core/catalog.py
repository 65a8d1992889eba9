"""The catalog: closed, frozen models of the files below images/. Reading them is `cannery.edge.catalog`'s work.

Unknown keys are refused. YAML reads an unquoted `3.10` as the number 3.1, so a number where a version belongs is an
error that says to quote it.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from cannery.core.target import parse_arch, parse_cann, parse_chip, parse_os, parse_python
from cannery.core.words import Arch, BaseKind, Chip, ComponentKind

if TYPE_CHECKING:
    from collections.abc import Callable


def _text(value: object) -> object:
    kind = yaml_kind(value)
    if kind is not None:
        raise ValueError(f'unquoted {value} is {kind} to YAML; quote it: "{value}"')
    return value


def yaml_kind(value: object) -> str | None:
    """Return what an unquoted scalar of YAML became, in words, where that is no text; else None."""
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    return "a date" if isinstance(value, date) else None


def _parsed(parse: Callable[[str, str], object]) -> BeforeValidator:
    def validate(value: object) -> object:
        text = _text(value)
        if not isinstance(text, str):
            raise ValueError("a text is wanted here")  # noqa: TRY004 - pydantic collects ValueError
        try:
            return parse(text, "value")
        except Exception as error:
            raise ValueError(str(error).removeprefix("value: ")) from error

    return BeforeValidator(validate)


def _requirement(text: str, _option: str) -> str:
    try:
        Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"{text!r} is not a requirement: {error}") from error
    return text


def _version(text: str, _option: str) -> str:
    try:
        Version(text)
    except InvalidVersion as error:
        raise ValueError(f"{text!r} is not a version") from error
    return text


Text = Annotated[str, BeforeValidator(_text)]
VersionText = Annotated[str, _parsed(_version)]
# Both go into an ENV instruction and a shell script, a line each.
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
EnvValue = Annotated[Text, Field(pattern=r"^[^\r\n]*$")]
RequirementText = Annotated[str, _parsed(_requirement)]
PythonText = Annotated[str, _parsed(parse_python)]
CannText = Annotated[str, _parsed(parse_cann)]
OsText = Annotated[str, _parsed(parse_os)]


class Closed(BaseModel):
    """Base of every catalog model: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class Index(Closed):
    """A package index that the stacks name: its URLs in the order in which they are tried."""

    urls: tuple[Text, ...] = Field(min_length=1)
    note: Text = ""


class Reasoned(Closed):
    """A requirement that bends the resolution, with the reason it is there."""

    requirement: RequirementText
    reason: Text = Field(min_length=8)


class Import(Closed):
    """An import that verify makes in the image; `attribute` (dotted) must exist, and equal `equals` when given."""

    module: Text
    attribute: Text | None = None
    equals: Text | None = None


class StandInMetadata(Closed):
    """Requirements of a release, for locking where its index cannot be reached. `source` says where they were read."""

    requires: tuple[RequirementText, ...]
    source: Text


class Component(Closed):
    """One file of images/components: where a part comes from, how it is installed and checked."""

    kind: ComponentKind
    summary: Text
    package: Text | None = None
    extras: tuple[Text, ...] = ()
    # The only index this package may come from (a name in images/indexes.yaml); None is the host's default index.
    index: Text | None = None
    # Local version segment that the wanted build carries on that index (torch: `cpu`), added to the pin.
    local: Text | None = None
    # Distributions that follow this one and are bound to the same index.
    binds: tuple[Text, ...] = ()
    metadata: dict[Text, StandInMetadata] = {}
    imports: tuple[Import, ...] = ()
    libraries: tuple[Text, ...] = ()
    env: dict[EnvName, EnvValue] = {}
    # System packages by family: `apt`, `dnf`; and `links`: path in the image -> target, by family and arch.
    system: dict[Literal["apt", "dnf"], tuple[Text, ...]] = {}
    links: dict[str, dict[Literal["apt", "dnf"], dict[Arch, Text]]] = {}


class Pin(Closed):
    """A component that a profile takes, at which version and why."""

    name: Text
    version: VersionText | None = None
    extras: tuple[Text, ...] = ()
    reason: Text = ""


class TargetDefaults(Closed):
    """The target a profile is made for, and what else it may be built for."""

    cann: CannText
    chip: Annotated[Chip, _parsed(parse_chip)]
    os: OsText
    python: PythonText
    arch: tuple[Annotated[Arch, _parsed(parse_arch)], ...] = (Arch.ARM64, Arch.AMD64)
    pythons: tuple[PythonText, ...] = ()


class Profile(Closed):
    """One file of images/profiles: a stack."""

    summary: Text
    documents: tuple[Text, ...] = ()
    # `cann`: the CANN image of the target; `standin`: the stand-in base.
    base: Literal["cann", "standin"] = "cann"
    target: TargetDefaults
    exclude_newer: Text
    components: tuple[Pin, ...] = Field(min_length=1)
    constraints: tuple[Reasoned, ...] = ()
    overrides: tuple[Reasoned, ...] = ()
    excludes: tuple[Reasoned, ...] = ()
    env: dict[EnvName, EnvValue] = {}
    # As docker writes sizes: a number, and k, m or g (1024 based).
    shm_size: Annotated[Text, Field(pattern=r"^[0-9]+[kKmMgG]?$")] = "16g"
    pip_check_allow: tuple[Text, ...] = ()
    may_skip: dict[BaseKind, tuple[Text, ...]] = {}

    @field_validator("exclude_newer")
    @classmethod
    def _date(cls, value: str) -> str:
        if date.fromisoformat(value).isoformat() != value:
            raise ValueError(f"{value!r} is not a date written like 2026-11-20")
        return value

    @field_validator("components")
    @classmethod
    def _once(cls, value: tuple[Pin, ...]) -> tuple[Pin, ...]:
        names = [canonicalize_name(pin.name) for pin in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        return value


class BaseTag(Closed):
    """One CANN image tag: its interpreter's full version and the C++ ABI of ATB that its ENV names."""

    python: Text
    atb_abi: Literal[0, 1]


class VersionFile(Closed):
    """A file of the base that tells the version of one CANN part.

    `path` may hold `{machine}` (x86_64, aarch64); `line` is the line that tells it, `{version}` standing for the
    version as CANN writes it (8.3.RC1).
    """

    name: Text
    path: Text
    line: Text

    def at(self, arch: Arch) -> str:
        """Return the file's path in an image of `arch`."""
        return self.path.replace("{machine}", arch.machine)


class BaseLine(Closed):
    """One file of images/bases: what the images of one CANN version have in common."""

    cann: CannText
    source: Text
    toolkit_home: Text
    set_env: tuple[Text, ...]
    version_files: tuple[VersionFile, ...]
    # ENV lines in the order in which the image sets them, by OS; `${NAME}` refers to what was set before,
    # `{python_home}` to /usr/local/python<full version>, `{atb_abi}` to the tag's C++ ABI of ATB.
    env: dict[OsText, tuple[Text, ...]]
    # What CANN's own Python code imports and these images do not bring into a virtual environment.
    python_packages: tuple[RequirementText, ...]
    tags: dict[Text, BaseTag]


class Registries(Closed):
    """Where CANN images are published: full repositories, in the order in which they are tried."""

    repositories: tuple[Text, ...] = Field(min_length=1)
    source: Text


class StubLibrary(Closed):
    """A CANN library that the stand-in has as a stub, and which undefined symbols of torch_npu belong to it.

    A symbol belongs to the library with the longest matching prefix (C names) or with the outermost namespace (C++).
    `opened`: torch_npu opens it by name at run time, so that no NEEDED entry asks for it.
    """

    prefixes: tuple[Text, ...] = ()
    namespaces: tuple[Text, ...] = ()
    home: Literal["toolkit", "atb"] = "toolkit"
    opened: bool = False


class StandIn(Closed):
    """images/standin/recipe.yaml: what the stand-in base is made of (DESIGN, "Stand-in base")."""

    # Raised when the code that makes the image changes what it makes.
    schema_number: int = Field(alias="schema", ge=1)
    suite: Text
    python: PythonText
    # Seconds since 1970: the mtime of every file.
    epoch: int = Field(ge=0)
    packages: tuple[Text, ...] = Field(min_length=1)
    # Globs of absolute paths that stay out of the image, and of those below them that come in all the same.
    leave_out: tuple[Text, ...] = ()
    keep: tuple[Text, ...] = ()
    # Empty folders below the toolkit that CANN's own scripts and torch_npu look for.
    folders: tuple[Text, ...] = ()
    libraries: dict[Text, StubLibrary] = Field(min_length=1)


class Tools(Closed):
    """Build tools of the stages (uv, setuptools …); they never enter an image."""

    requirements: tuple[RequirementText, ...]
    exclude_newer: Text


class PairRow(Closed):
    """A pair of torch and torch_npu that its makers declare, and the CANN it was made for."""

    torch_npu: VersionText
    torch: VersionText
    cann: CannText
    source: Text
    date: Text


class Denied(Closed):
    """A glob of distribution names that must not come into an image, with the reason."""

    pattern: Text
    reason: Text


class Compatibility(Closed):
    """images/compatibility.yaml: rows that say what fits; a pair in no row is unknown, never ok."""

    torch_pairs: tuple[PairRow, ...] = Field(min_length=1)
    deny: tuple[Denied, ...] = ()
    # Distributions that must not be installed beside each other.
    exclusive: tuple[tuple[Text, ...], ...] = ()


class ChipAccess(Closed):
    """How a container reaches the NPUs of one chip family: device nodes and host paths that it needs."""

    names: Text
    cards: int = Field(ge=1)
    managers: tuple[Text, ...] = Field(min_length=1)
    mounts: tuple[Text, ...]


class Catalog(Closed):
    """Everything below images/, read and checked."""

    chips: dict[str, ChipAccess]

    profiles: dict[str, Profile]
    components: dict[str, Component]
    bases: dict[str, BaseLine]
    registries: Registries
    indexes: dict[str, Index]
    tools: Tools
    standin: StandIn
    compatibility: Compatibility
