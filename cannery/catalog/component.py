"""Components of the catalog: where each comes from, what it requires, and how it is installed and checked."""

import re
from functools import cache, cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from cannery.catalog import fields
from cannery.catalog.errors import FaultError
from cannery.catalog.target import parsed_range, parsed_version
from cannery.vocab import Arch, ComponentKind, Install, did_you_mean

# Placeholders (`{name}`) in commands of `before`: the Python of the virtual environment, the number of parallel jobs,
# the value of `soc_variable`, and the toolkit folder of CANN.
BEFORE_WORDS = frozenset({"python", "jobs", "soc", "toolkit_home"})
Command = Annotated[tuple[fields.LineText, ...], Field(min_length=1)]


class Closed(BaseModel):
    """Base of every catalog model: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, defer_build=True)


class Import(Closed):
    """An import that verify tries in the image. `attribute` (dotted) must exist, and equal `equals` if that is given.

    If `standin` is given, the import is not tried on a stand-in; it is the reason.
    """

    module: fields.ModuleText
    attribute: fields.ModuleText | None = None
    equals: fields.Text | None = None
    standin: fields.Text | None = None


class StandInMetadata(Closed):
    """The requirements of a release, for locking while its index cannot be reached. They were read at `source`."""

    requires: tuple[fields.RequirementText, ...]
    source: fields.Text


Abi = Annotated[int, Field(ge=0, le=1)]


class CxxAbi(Closed):
    """The C++ ABI of a distribution's wheels, by arch and range of versions. The first range that fits counts."""

    by_release: dict[Arch, dict[fields.SpecifierText, Abi]]
    source: fields.Text


class Submodule(Closed):
    """A git submodule of a revision: its repository (`owner/name`) and commit.

    `added`: git has no submodule at that path, but the tree is put there.
    """

    repository: fields.RepositoryText
    commit: fields.CommitText
    added: bool = False


class PatchSets(Closed):
    """The patch sets for other components in a plugin's tree: `<folder>/<repo>/<revision>/*.patch`.

    `repos` maps a repo to its component. `summary` is the plugin's own summary file. `truncated` names patches whose
    files are cut off, with the number of damaged context lines. 1: the last line has no line end. 2: the line after it
    is missing too.
    """

    folder: fields.RelativeText
    summary: fields.RelativeText | None = None
    repos: dict[fields.Name, fields.Name] = Field(min_length=1)
    # Image digests still use the old name of the field.
    truncated: dict[fields.Text, Annotated[int, Field(ge=1, le=2)]] = Field({}, serialization_alias="fuzz")


class Edit(Closed):
    """An edit of a tree that a plugin's setup.py would make (`cannery.patches.io.patching`), with its reason.

    It has one action. `imports` adds `if WHEN: import MODULE` at the end of the file. `comments_out` comments out a
    statement. `takes_over` names functions that move to a module of Cannery.
    """

    name: fields.Name
    component: fields.Name
    file: fields.RelativeText
    imports: fields.ModuleText | None = None
    when: fields.ModuleText | None = None
    comments_out: fields.Text | None = None
    takes_over: tuple[fields.ModuleText, ...] = ()
    reason: fields.Text = Field(min_length=8)

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        actions = ("imports", "comments_out", "takes_over")
        given = [name for name in actions if getattr(self, name)]
        if len(given) != 1:
            raise FaultError(f"an edit does one thing, this one {len(given)}", f"give one of {', '.join(actions)}")
        if (self.imports is None) != (self.when is None):
            raise FaultError("imports and when go together", "the edit writes `if WHEN: import IMPORTS`: give both")
        return self


class Known(Closed):
    """Facts about a source component at one commit, or about one release, known without fetching it.

    `build_requires` are its build requirements. `chips` are the chips of its prebuilt kernels; empty if it has none.
    `patches` lists, by component, the commits that it has patch sets for. `source` is where all this was read.
    """

    requires: tuple[fields.RequirementText, ...] = ()
    # The files of the tree that have them (`cannery.sources.requires`). A build compares them with `requires`.
    requires_from: tuple[fields.Text, ...] = ()
    requires_python: fields.SpecifierText | None = None
    build_requires: tuple[fields.RequirementText, ...] = ()
    submodules: dict[fields.RelativeText, Submodule] = {}
    chips: tuple[fields.ChipText, ...] = ()
    patches: dict[fields.Name, tuple[fields.CommitText, ...]] = {}
    date: fields.DateText | None = None
    note: fields.Text = ""
    source: fields.Text

    @cached_property
    def inputs(self) -> dict[str, object]:
        """The fields that change an image."""
        return self.model_dump(mode="json", exclude={"source", "note", "requires_from"}, exclude_defaults=True)


class Revision(Known):
    """One commit of a repository; `version` is the version of the distribution there.

    `release` is the nearest release on the package index. `SOURCES=release` uses it instead of the commit.
    """

    version: fields.VersionText
    release: fields.VersionText | None = None


class Release(Known):
    """A release on the package index. With `sdist`, its source distribution is built, because its wheels differ."""

    sdist: bool = False


class OnStandIn(Closed):
    """How a native component is built on a stand-in, which has no CANN to compile against, and why.

    `build_env` and `install` replace the component's values. With `leave_out`, stand-in images do not have it.
    """

    build_env: dict[fields.EnvName, fields.EnvValue] = {}
    install: Install | None = None
    leave_out: bool = False
    reason: fields.Text

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.leave_out and (self.build_env or self.install):
            raise ValueError("with leave_out it is not built, so build_env and install have no effect")
        return self


class Part(Closed):
    """The fields of every kind of component. Each is a file in images/components."""

    kind: ComponentKind
    summary: fields.LineText
    # Components that come before this one in a profile. They are installed when this one is built or installed.
    after: tuple[fields.Name, ...] = ()
    # The chips it works on; empty means all.
    chips: tuple[fields.ChipText, ...] = ()
    imports: tuple[Import, ...] = ()
    libraries: tuple[fields.PathText, ...] = ()
    # Programs that it finds on PATH at run time, such as compilers of code that is built on first use (fact T27).
    programs: tuple[fields.WordText, ...] = ()
    env: dict[fields.EnvName, fields.EnvValue] = {}

    @cached_property
    def inputs(self) -> dict[str, object]:
        """The fields that change an image. Those of a revision or release change the images that take it."""
        others = {"summary", "metadata", "revisions", "releases"}
        return self.model_dump(mode="json", exclude=others, exclude_defaults=True)


class Wheels(Part):
    """A distribution that is installed from a wheel of a package index."""

    kind: Literal[ComponentKind.WHEELS]
    package: fields.Name | None = None
    extras: tuple[fields.Name, ...] = ()
    # The only index this package may come from (a name in images/indexes.yaml). None is the host's default index.
    index: fields.Name | None = None
    # A range of versions, by arch, that comes from the default index instead, without the local segment. The packages
    # in `binds` then also come from there.
    index_except: dict[Arch, fields.SpecifierText] = {}
    # The local version segment of the build on that index (torch: `cpu`). It is added to the pin.
    local: fields.LocalText | None = None
    # Distributions that are bound to the same index.
    binds: tuple[fields.Name, ...] = ()
    metadata: dict[fields.VersionText, StandInMetadata] = {}
    # For torch_npu: the environment of the image names the build of ATB with this ABI (`cannery.recipe.environment`).
    cxx_abi: CxxAbi | None = None

    @model_validator(mode="after")
    def _has_an_index(self) -> Self:
        for name in ("binds", "metadata", "index_except"):
            if self.index is None and getattr(self, name):
                raise FaultError(f"{name} needs an index, and none is given", "name one as index", (name,))
        return self

    def index_on(self, arch: Arch, version: str | None) -> str | None:
        """Return the only index that `version` (None: not pinned) may come from on `arch`; None is the default index.

        A version with a local segment always comes from `index`.
        """
        excepted = self.index_except.get(arch)
        if excepted is None or version is None:
            return self.index
        wanted = parsed_version(version)
        is_except = wanted.local is None and parsed_range(excepted).contains(wanted, prereleases=True)
        return None if is_except else self.index


class System(Part):
    """System packages by package manager, and links: {path in the image: {package manager: {arch: target}}}."""

    kind: Literal[ComponentKind.SYSTEM]
    system: dict[Literal["apt", "dnf"], tuple[fields.PackageText, ...]] = {}
    links: dict[fields.LinkText, dict[Literal["apt", "dnf"], dict[Arch, fields.PathText]]] = {}


class FromSource(Part):
    """The fields of `source` and `native`: a distribution built from a commit of a repository or from a release."""

    kind: Literal[ComponentKind.SOURCE, ComponentKind.NATIVE]
    package: fields.Name | None = None
    # {host (a name in images/hosts.yaml): `owner/name` there}, in the order in which they are tried.
    hosts: dict[fields.Name, fields.RepositoryText] = {}
    install: Install
    build_env: dict[fields.EnvName, fields.EnvValue] = {}
    # The folder of the project in the repository; None is the top folder.
    subdirectory: fields.RelativeText | None = None
    # The files and folders of the repository that are exported; empty means all.
    paths: tuple[fields.RelativeText, ...] = ()
    # Links from its tree to other trees of the image: {path in this tree: component/path in the other}.
    tree_links: dict[fields.RelativeText, fields.RelativeText] = {}
    # Modules that its setup.py imports but does not use. The build stage provides empty ones.
    stubs: tuple[fields.ModuleText, ...] = ()
    # Patch sets in its tree for other components, and edits of trees that its setup.py would make.
    patch_sets: PatchSets | None = None
    edits: tuple[Edit, ...] = ()
    revisions: dict[fields.CommitText, Revision] = {}
    releases: dict[fields.VersionText, Release] = {}

    @model_validator(mode="after")
    def _comes_from_somewhere(self) -> Self:
        if not (self.revisions or self.releases):
            raise FaultError(f"kind {self.kind} needs revisions or releases: they hold what its build requires")
        if self.revisions and not self.hosts:
            raise FaultError("revisions are commits of a repository", "name the hosts that have it", ("revisions",))
        for commit, revision in self.revisions.items():
            if revision.release and revision.release not in self.releases:
                what = f"a revision's release {revision.release} is not among the releases"
                raise FaultError(what, "add it there", ("revisions", commit, "release"))
        return self


class Source(FromSource):
    """A distribution built from source, with the same result on every platform."""

    kind: Literal[ComponentKind.SOURCE]


class Native(FromSource):
    """A distribution that is compiled on the target's arch, against its CANN."""

    kind: Literal[ComponentKind.NATIVE]
    # How it is built on a stand-in.
    standin: OnStandIn | None = None
    # The variable that names the chip for the build. Its value follows from the target's chip.
    soc_variable: fields.EnvName | None = None
    # Commands that run before its build hook, in the top folder of its tree: argument lists, without a shell.
    before: tuple[Command, ...] = ()

    @model_validator(mode="after")
    def _words_are_filled_in(self) -> Self:
        for position, command in enumerate(self.before):
            for place, text in enumerate(command):
                for word in re.findall(r"\{([^{}]*)\}", text):
                    if word not in BEFORE_WORDS:
                        hint, where = did_you_mean(word, BEFORE_WORDS), ("before", position, place)
                        raise FaultError(f"{{{word}}} is not a known placeholder", hint, where)
        if self.soc_variable is None and any("{soc}" in word for command in self.before for word in command):
            what = "{soc} needs soc_variable, which is not given"
            raise FaultError(what, "set soc_variable to the variable that names the chip to its build", ("before",))
        return self


# One file in images/components.
Component = Annotated[Wheels | System | Source | Native, Field(discriminator="kind")]


@cache
def _adapter() -> TypeAdapter[Component]:
    return TypeAdapter(Component)


def parse_component(value: object) -> Component:
    """Return the component that a mapping describes. Raises pydantic's `ValidationError` for any other value."""
    return _adapter().validate_python(value)
