"""The catalog: frozen models of the files below images/, which `cannery.catalog.io.read` reads.

Unknown keys are refused; `cannery.catalog.fields` checks single values. docs/reference/fields.md explains the fields of
profiles and components.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from packaging.utils import canonicalize_name
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from cannery.catalog import fields
from cannery.catalog.addresses import Host, Index, Published, Registries
from cannery.catalog.compatibility import Compatibility, Drivers
from cannery.catalog.component import Abi, Closed, Component, FromSource
from cannery.catalog.errors import CatalogError, FaultError, as_line
from cannery.catalog.fields import NAME, once, parsed
from cannery.errors import UsageError
from cannery.vocab import Arch, BaseKind

# What every distribution's tools take as a name in /etc/passwd; the driver's user has capitals.
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
# Below are the distribution's own users, above are nobody (65534) and what OpenShift gives to namespaces.
FIRST_ID, LAST_ID = 1000, 60000
# The driver's installer makes its user with this number on hosts, and gives the device nodes to it (case U01).
DRIVER_ID = 1000


def _user_name(value: str) -> str:
    if not USER_NAME.fullmatch(value):
        what = f"{value!r} is not a name in /etc/passwd"
        raise FaultError(what, "letters, digits, _ and -, at most 32, the first no digit, like HwHiAiUser")
    if value == "root":
        raise FaultError("root needs no user", "leave `user` out: images run as root then")
    return value


class ImageUser(Closed):
    """A user with a name, a number, a group of the same name, and a home /home/<name>."""

    name: Annotated[str, parsed(_user_name)]
    uid: int = Field(DRIVER_ID, ge=FIRST_ID, le=LAST_ID)
    gid: int = Field(DRIVER_ID, ge=FIRST_ID, le=LAST_ID)

    @property
    def home(self) -> str:
        """The folder that HOME names."""
        return f"/home/{self.name}"


class Reasoned(Closed):
    """A requirement that bends the resolution, with the reason it is there."""

    requirement: fields.RequirementText
    reason: fields.Text = Field(min_length=8)


class Warned(Closed):
    """What somebody who takes the stack has to know, as `check` prints it: a warning, and why it is so."""

    what: fields.Text
    reason: fields.Text = Field(min_length=8)


class Pin(Closed):
    """A component that a profile takes, at which version and why."""

    name: fields.Name
    # Of wheels: the exact version. Of a source: the full commit, or the release on the package index in
    # its place.
    version: fields.VersionText | None = None
    commit: fields.CommitText | None = None
    release: fields.VersionText | None = None
    reason: fields.Text = ""

    @model_validator(mode="before")
    @classmethod
    def _a_mapping(cls, value: object) -> object:
        if isinstance(value, str):
            raise FaultError("a mapping is expected here", f"write `- {{name: {value}}}`")
        return value


class Later(Closed):
    """A package whose uploads count up to another day than the profile's, with the reason."""

    date: fields.DateText
    reason: fields.Text = Field(min_length=8)


class Substitute(Closed):
    """Another version of a component on the stand-in base, where the profile's own cannot be had, and why."""

    name: fields.Name
    version: fields.VersionText
    reason: fields.Text = Field(min_length=8)


class Replaced(Closed):
    """Marks a documented set of the past: the day of its guide, and the profile to take in its place."""

    date: fields.DateText
    by: fields.Name


class TargetDefaults(Closed):
    """The target a profile is made for, and what else it may be built for."""

    cann: fields.CannText
    chip: fields.ChipText
    os: fields.OsText
    python: fields.PythonText
    arch: Annotated[tuple[fields.ArchText, ...], once()] = Field((Arch.ARM64, Arch.AMD64), min_length=1)
    pythons: Annotated[tuple[fields.PythonText, ...], once()] = ()


class Profile(Closed):
    """One file of images/profiles: a stack."""

    # The profile whose fields this one takes and changes, and the packages that are left out of them
    # (`cannery.catalog.documents`). The other fields are those of both together.
    extends: fields.Name | None = None
    without: tuple[fields.Name, ...] = ()
    # The description that the image's label has.
    summary: fields.LineText
    # Its place in lists of profiles, lowest first; those that were replaced come last.
    place: int = 50
    replaced: Replaced | None = None
    documents: tuple[fields.Text, ...] = ()
    # `cann`: the CANN image of the target; `standin`: the stand-in base.
    base: Literal["cann", "standin"] = "cann"
    target: TargetDefaults
    exclude_newer: fields.DateText
    exclude_newer_packages: dict[fields.Name, Later] = Field(default_factory=dict)
    components: Annotated[tuple[Pin, ...], once(lambda pin: canonicalize_name(pin.name))] = Field(min_length=1)
    constraints: tuple[Reasoned, ...] = ()
    overrides: tuple[Reasoned, ...] = ()
    excludes: tuple[Reasoned, ...] = ()
    substitutes: tuple[Substitute, ...] = ()
    warnings: tuple[Warned, ...] = ()
    env: dict[fields.EnvName, fields.EnvValue] = Field(default_factory=dict)
    shm_size: fields.SizeText = "16g"
    # Whether its jobs run on several hosts (prefill and decode apart, for one): HCCL then needs the NPUs' own network.
    several_hosts: bool = False
    # Where a container starts: a tree whose scripts are run from there. Without it, the user's home, or /.
    workdir: fields.PathText | None = None
    # Who the image runs as: a name, or {name, uid, gid}. None: root.
    user: (
        Annotated[ImageUser, BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)] | None
    ) = None
    # Regular expressions of lines that `pip check` may print in the image.
    pip_check_allow: tuple[fields.PatternText, ...] = ()
    may_skip: dict[BaseKind, tuple[fields.CheckId, ...]] = Field(default_factory=dict)

    @field_validator("without")
    @classmethod
    def _of_another(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and not info.data.get("extends"):
            raise FaultError("`without` leaves out what another profile has: name that profile in `extends`")
        return value

    @field_validator("excludes")
    @classmethod
    def _name_alone(cls, value: tuple[Reasoned, ...]) -> tuple[Reasoned, ...]:
        for position, item in enumerate(value):
            if not NAME.fullmatch(item.requirement):
                what = f"{item.requirement!r}: write only the name here, because every version of it is left out"
                raise FaultError(what, path=(position, "requirement"))
        return value

    @field_validator("exclude_newer_packages")
    @classmethod
    def _one_spelling(cls, value: dict[str, Later]) -> dict[str, Later]:
        known: dict[str, str] = {}
        for name in value:
            other = known.setdefault(canonicalize_name(name), name)
            if other != name:
                raise FaultError(f"{name} and {other} are one package", "remove one of them", (name,))
        return value


class BaseTag(Closed):
    """One CANN image tag: its interpreter's full version and the C++ ABI of ATB that its ENV names."""

    python: fields.FullPythonText
    atb_abi: Abi


class VersionFile(Closed):
    """A file of the base with the version of one CANN part.

    `path` may hold `{machine}` (x86_64, aarch64); `line` is the line that has it, with `{version}` in place of the
    version as CANN writes it (8.3.RC1).
    """

    name: fields.Name
    path: fields.MachinePathText
    line: fields.LineText

    def at(self, arch: Arch) -> str:
        """Return the file's path in an image of `arch`."""
        return self.path.replace("{machine}", arch.machine)


class BaseLine(Closed):
    """One file of images/bases: what the images of one CANN version have in common."""

    cann: fields.CannText
    source: fields.Text
    toolkit_home: fields.PathText
    # The scripts that ENTRYPOINT sources, in order, with their arguments.
    set_env: tuple[fields.ScriptText, ...]
    version_files: tuple[VersionFile, ...]
    # ENV lines in the order in which the image sets them, by OS; `${NAME}` refers to what was set before,
    # `{python_home}` to /usr/local/python<full version>, `{atb_abi}` to the tag's C++ ABI of ATB.
    env: dict[fields.OsText, tuple[fields.EnvLine, ...]]
    # What CANN's own Python code imports and these images do not bring into a virtual environment.
    python_packages: tuple[fields.RequirementText, ...]
    tags: dict[fields.TagText, BaseTag]

    @property
    def scripts(self) -> tuple[str, ...]:
        """The paths of the scripts in `set_env`."""
        return tuple(text.partition(" ")[0] for text in self.set_env)

    @property
    def program_folders(self) -> tuple[str, ...]:
        """The folders that scripts add to PATH and ENV does not name: those of scripts in a `bin`.

        triton-ascend finds its compiler, AscendNPU-IR's, there.
        """
        folders = (script.rpartition("/")[0] for script in self.scripts)
        return tuple(folder for folder in folders if folder.endswith("/bin"))


class StubLibrary(Closed):
    """A CANN library that the stand-in has as a stub, and which undefined symbols of torch_npu belong to it.

    A symbol belongs to the library with the longest matching prefix (C names) or with the outermost namespace (C++).
    `opened`: torch_npu opens it by name at run time, so that no NEEDED entry asks for it.
    """

    prefixes: tuple[fields.Text, ...] = ()
    namespaces: tuple[fields.Text, ...] = ()
    home: Literal["toolkit", "atb"] = "toolkit"
    opened: bool = False


class StandIn(Closed):
    """images/standin/recipe.yaml: what the stand-in base is made of (DESIGN, "Stand-in base")."""

    # Increased when the code that makes the image changes its content.
    schema_number: int = Field(alias="schema", ge=1)
    suite: fields.WordText
    python: fields.PythonText
    # Seconds since 1970: the mtime of every file. Every file system and archive can hold it.
    epoch: int = Field(ge=0, le=2**31 - 1)
    packages: tuple[fields.PackageText, ...] = Field(min_length=1)
    # Globs of absolute paths that stay out of the image, and of paths below them that are still included.
    leave_out: tuple[fields.GlobText, ...] = ()
    keep: tuple[fields.GlobText, ...] = ()
    # Empty folders below the toolkit that CANN's own scripts and torch_npu look for.
    folders: tuple[fields.RelativeText, ...] = ()
    # Python modules of CANN that are empty here: they can be imported, and nothing of them can be used.
    modules: tuple[fields.ModuleText, ...] = ()
    libraries: dict[fields.WordText, StubLibrary] = Field(min_length=1)


class Tools(Closed):
    """Build tools of the stages (uv, setuptools …); they never enter an image."""

    requirements: tuple[fields.RequirementText, ...]
    exclude_newer: fields.DateText


class ChipAccess(Closed):
    """How a container reaches the NPUs of one chip family: device nodes and host paths that it needs."""

    names: fields.LineText
    # Of the usual machine, and of the largest one where that has more.
    cards: int = Field(ge=1, le=1024)
    most: int = Field(0, ge=0, le=1024)
    managers: tuple[fields.DeviceText, ...] = Field(min_length=1)
    # Folders of nodes that a container gets where the host has them.
    folders: tuple[fields.DeviceText, ...] = ()
    mounts: tuple[fields.PathText, ...]
    # What HCCL reads to reach other hosts, and the version of the ranktable that it takes (None: none is known).
    network: tuple[fields.PathText, ...] = ()
    ranktable: fields.Text | None = None
    # What the Ascend device plugin calls the chip's cards in Kubernetes.
    resource: fields.ResourceText | None = None
    # What native builds call the chip, the usual one first: the value of SOC_VERSION and the like.
    socs: tuple[fields.WordText, ...] = ()

    @property
    def largest(self) -> int:
        """The number of cards of the largest machine."""
        return max(self.cards, self.most)


def further_pythons(profile: Profile, line: BaseLine) -> Iterator[tuple[str, str]]:
    """Give (Python, OS) of each further Python of `profile`.

    The OS is the profile's own where `line` has an image with that Python on it, else the first that has; "" where no
    image of the profile's chip has it.
    """
    target = profile.target
    for python in target.pythons:
        tag = re.compile(rf"{re.escape(line.cann)}-{target.chip}-(.+)-py{re.escape(python)}")
        found = [match[1] for match in map(tag.fullmatch, line.tags) if match]
        yield python, target.os if target.os in found else next(iter(found), "")


@dataclass(frozen=True)
class Catalog:
    """Everything below images/, and below a folder of the user's that is laid over it, read and checked.

    A profile that uses a broken file is not among `profiles`. `problems` are all that were found; `broken` has the
    error of each profile, component and base line that cannot be used, by the name of its file below images/.
    """

    chips: Mapping[str, ChipAccess]
    profiles: Mapping[str, Profile]
    components: Mapping[str, Component]
    bases: Mapping[str, BaseLine]
    registries: Registries
    indexes: Mapping[str, Index]
    hosts: Mapping[str, Host]
    tools: Tools
    standin: StandIn
    compatibility: Compatibility
    drivers: Drivers = field(default_factory=Drivers)
    hashes: Mapping[str, Published] = field(default_factory=dict)
    problems: tuple[UsageError, ...] = ()
    broken: Mapping[str, CatalogError] = field(default_factory=dict)
    # Files that are not the built-in ones: their names as messages have them, by the name below images/.
    own: Mapping[str, str] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """Return how messages call a file of the catalog, by its name below images/."""
        return self.own.get(name, f"images/{name}")

    @property
    def sources(self) -> dict[str, FromSource]:
        """The components that are built from source."""
        return {name: one for name, one in self.components.items() if isinstance(one, FromSource)}

    @property
    def warning(self) -> str:
        """One line about what is broken; "" where nothing is."""
        if not self.problems:
            return ""
        names = [file.removeprefix("profiles/").removesuffix(".yaml") for file in self.broken if "profiles/" in file]
        stops = f"cannot use profile {', '.join(sorted(names))}" if names else "no profile is affected"
        first, more = as_line(self.problems[0]), len(self.problems) - 1
        return f"warning: {stops}: {first}" + (f"; and {more} more problems" if more else "")

    def check_file(self, name: str) -> None:
        """Raise the `CatalogError` of the profile, component or base line in the file `name`, if it has one."""
        if name in self.broken:
            raise self.broken[name]
