"""The catalog: frozen models of the files in images/, which `cannery.catalog.io.read` reads.

Unknown keys are errors. `cannery.catalog.fields` checks single values. docs/reference/fields.md explains the fields of
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

# A user name that the tools of every distribution accept. The driver's user has capital letters.
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
# Lower numbers are users of the distribution. Higher ones are nobody (65534) and OpenShift's ranges for namespaces.
FIRST_ID, LAST_ID = 1000, 60000
# The driver's installer creates a user with this number on the host, which owns the device nodes (case U01).
DRIVER_ID = 1000


def _user_name(value: str) -> str:
    if not USER_NAME.fullmatch(value):
        what = f"{value!r} is not a name in /etc/passwd"
        raise FaultError(what, "letters, digits, _ and -, at most 32, the first no digit, like HwHiAiUser")
    if value == "root":
        raise FaultError("root needs no user", "leave `user` out: images run as root then")
    return value


class ImageUser(Closed):
    """A user with a uid, a group of the same name, and the home /home/<name>."""

    name: Annotated[str, parsed(_user_name)]
    uid: int = Field(DRIVER_ID, ge=FIRST_ID, le=LAST_ID)
    gid: int = Field(DRIVER_ID, ge=FIRST_ID, le=LAST_ID)

    @property
    def home(self) -> str:
        """The value of HOME."""
        return f"/home/{self.name}"


class Reasoned(Closed):
    """A requirement that changes the resolution, with its reason."""

    requirement: fields.RequirementText
    reason: fields.Text = Field(min_length=8)


class Warned(Closed):
    """A warning about a stack that `check` prints, with its reason."""

    what: fields.Text
    reason: fields.Text = Field(min_length=8)


class Pin(Closed):
    """A component of a profile, with its version and the reason for it."""

    name: fields.Name
    # Wheels have an exact version. A source has a full commit, or a release on the package index.
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
    """Another `exclude_newer` date for one package, with the reason."""

    date: fields.DateText
    reason: fields.Text = Field(min_length=8)


class Substitute(Closed):
    """The version of a component on the stand-in base, if the profile's version is not available there, and why."""

    name: fields.Name
    version: fields.VersionText
    reason: fields.Text = Field(min_length=8)


class Replaced(Closed):
    """Marks a documented set of the past: the date of its guide, and the profile that replaces it."""

    date: fields.DateText
    by: fields.Name


class TargetDefaults(Closed):
    """The default target of a profile, and the other arches and Pythons that it may be built for."""

    cann: fields.CannText
    chip: fields.ChipText
    os: fields.OsText
    python: fields.PythonText
    arch: Annotated[tuple[fields.ArchText, ...], once()] = Field((Arch.ARM64, Arch.AMD64), min_length=1)
    pythons: Annotated[tuple[fields.PythonText, ...], once()] = ()


class Profile(Closed):
    """One file of images/profiles: a stack."""

    # The profile that this one extends, and the inherited packages to leave out (`cannery.catalog.documents`).
    # The other fields here have the result of both profiles.
    extends: fields.Name | None = None
    without: tuple[fields.Name, ...] = ()
    # The description in the image's label.
    summary: fields.LineText
    # Its place in lists of profiles, lowest first. Replaced profiles come last.
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
    # Whether its jobs run on several hosts, as with separate prefill and decode. HCCL then needs the NPU network.
    several_hosts: bool = False
    # The working directory of a container. The default is the user's home, or / for root.
    workdir: fields.PathText | None = None
    # The user of the image: a name, or {name, uid, gid}. None is root.
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
    """One CANN image tag: the full version of its Python, and the C++ ABI of ATB in its ENV."""

    python: fields.FullPythonText
    atb_abi: Abi


class VersionFile(Closed):
    """A file of the base that has the version of one CANN part.

    `path` may contain `{machine}` (x86_64, aarch64). `line` is the line with the version, with `{version}` in its
    place. CANN writes versions as 8.3.RC1.
    """

    name: fields.Name
    path: fields.MachinePathText
    line: fields.LineText

    def at(self, arch: Arch) -> str:
        """Return the path in an image for `arch`."""
        return self.path.replace("{machine}", arch.machine)


class BaseLine(Closed):
    """One file of images/bases: what the images of one CANN version have in common."""

    cann: fields.CannText
    source: fields.Text
    toolkit_home: fields.PathText
    # The scripts that the image's ENTRYPOINT sources, in order, with their arguments.
    set_env: tuple[fields.ScriptText, ...]
    version_files: tuple[VersionFile, ...]
    # ENV lines by OS, in the order in which the image sets them. `${NAME}` refers to an earlier value,
    # `{python_home}` to /usr/local/python<full version>, `{atb_abi}` to the C++ ABI of ATB of the tag.
    env: dict[fields.OsText, tuple[fields.EnvLine, ...]]
    # Packages that CANN's Python code imports. The base has them only outside of the virtual environment.
    python_packages: tuple[fields.RequirementText, ...]
    tags: dict[fields.TagText, BaseTag]

    @property
    def scripts(self) -> tuple[str, ...]:
        """The paths of the scripts in `set_env`."""
        return tuple(text.partition(" ")[0] for text in self.set_env)

    @property
    def program_folders(self) -> tuple[str, ...]:
        """The folders that scripts add to PATH and that ENV does not have: those of scripts in a folder `bin`.

        triton-ascend finds its compiler (AscendNPU-IR) there.
        """
        folders = (script.rpartition("/")[0] for script in self.scripts)
        return tuple(folder for folder in folders if folder.endswith("/bin"))


class StubLibrary(Closed):
    """A stub of a CANN library on the stand-in, and the undefined symbols of torch_npu that belong to it.

    A C symbol belongs to the library with the longest matching prefix, a C++ symbol to the one with its outermost
    namespace. `opened`: torch_npu opens the library by name at run time, without a NEEDED entry.
    """

    prefixes: tuple[fields.Text, ...] = ()
    namespaces: tuple[fields.Text, ...] = ()
    home: Literal["toolkit", "atb"] = "toolkit"
    opened: bool = False


class StandIn(Closed):
    """images/standin/recipe.yaml: the content of the stand-in base."""

    # Increased when the code that makes the image changes its content.
    schema_number: int = Field(alias="schema", ge=1)
    suite: fields.WordText
    python: fields.PythonText
    # The mtime of every file, in seconds since 1970; below 2^31, which every file system and archive can store.
    epoch: int = Field(ge=0, le=2**31 - 1)
    packages: tuple[fields.PackageText, ...] = Field(min_length=1)
    # Globs of absolute paths that are left out of the image, and of paths below them that are still included.
    leave_out: tuple[fields.GlobText, ...] = ()
    keep: tuple[fields.GlobText, ...] = ()
    # Empty folders below the toolkit that CANN's own scripts and torch_npu look for.
    folders: tuple[fields.RelativeText, ...] = ()
    # Python modules of CANN that are empty on the stand-in: they can be imported, but not used.
    modules: tuple[fields.ModuleText, ...] = ()
    libraries: dict[fields.WordText, StubLibrary] = Field(min_length=1)


class Tools(Closed):
    """Build tools of the build stages (uv, setuptools …). They are never part of an image."""

    requirements: tuple[fields.RequirementText, ...]
    exclude_newer: fields.DateText


class ChipAccess(Closed):
    """How a container reaches the NPUs of one chip family: its device nodes and host paths."""

    names: fields.LineText
    # The number of cards of the usual machine, and of the largest one if that has more.
    cards: int = Field(ge=1, le=1024)
    most: int = Field(0, ge=0, le=1024)
    managers: tuple[fields.DeviceText, ...] = Field(min_length=1)
    # Folders of device nodes that a container gets if the host has them.
    folders: tuple[fields.DeviceText, ...] = ()
    mounts: tuple[fields.PathText, ...]
    # Files that HCCL reads to reach other hosts, and the version of its ranktable (None: not known).
    network: tuple[fields.PathText, ...] = ()
    ranktable: fields.Text | None = None
    # The name of the chip's cards in Kubernetes, from the Ascend device plugin.
    resource: fields.ResourceText | None = None
    # The names of the chip in native builds (SOC_VERSION and similar variables), the usual one first.
    socs: tuple[fields.WordText, ...] = ()

    @property
    def largest(self) -> int:
        """The number of cards of the largest machine."""
        return max(self.cards, self.most)


def further_pythons(profile: Profile, line: BaseLine) -> Iterator[tuple[str, str]]:
    """Yield (Python, OS) of each further Python of `profile`.

    The OS is the profile's if `line` has an image with that OS and Python. Otherwise it is the first OS that has one,
    or "" if no image for the profile's chip has that Python.
    """
    target = profile.target
    for python in target.pythons:
        tag = re.compile(rf"{re.escape(line.cann)}-{target.chip}-(.+)-py{re.escape(python)}")
        found = [match[1] for match in map(tag.fullmatch, line.tags) if match]
        yield python, target.os if target.os in found else next(iter(found), "")


@dataclass(frozen=True)
class Catalog:
    """All files in images/ and in the user's folder, read and checked. A file of the user replaces the built-in one.

    `profiles` has no profile that uses a broken file. `problems` lists all problems. `broken` has the error of each
    profile, component and base line that cannot be used, by its file name below images/.
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
    # Files of the user: {name below images/: name in messages}.
    own: Mapping[str, str] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """Return the name in messages of a catalog file, by its name below images/."""
        return self.own.get(name, f"images/{name}")

    @property
    def sources(self) -> dict[str, FromSource]:
        """The components that are built from source."""
        return {name: one for name, one in self.components.items() if isinstance(one, FromSource)}

    @property
    def warning(self) -> str:
        """One line about the problems, or ""."""
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
