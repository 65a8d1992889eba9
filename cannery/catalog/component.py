"""Components of the catalog: where each comes from, what it asks for, how it is installed and checked."""

import re
from functools import cache
from typing import Annotated, Literal, Self

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from cannery.catalog import fields
from cannery.catalog.errors import FaultError
from cannery.vocab import Arch, ComponentKind, Install, did_you_mean

# What a command of `before` may leave open, as `{name}`: the Python of the image's environment, how many jobs this
# machine runs at once, the value of `soc_variable`, and CANN's home in this base.
BEFORE_WORDS = frozenset({"python", "jobs", "soc", "toolkit_home"})
Command = Annotated[tuple[fields.LineText, ...], Field(min_length=1)]


class Closed(BaseModel):
    """Base of every catalog model: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, defer_build=True)


class Import(Closed):
    """An import that verify makes in the image; `attribute` (dotted) must exist, and equal `equals` when given.

    `standin` is why it cannot work on a stand-in, where it is then not tried.
    """

    module: fields.ModuleText
    attribute: fields.ModuleText | None = None
    equals: fields.Text | None = None
    standin: fields.Text | None = None


class StandInMetadata(Closed):
    """Requirements of a release, for locking where its index cannot be reached. `source` is where they were read."""

    requires: tuple[fields.RequirementText, ...]
    source: fields.Text


Abi = Annotated[int, Field(ge=0, le=1)]


class CxxAbi(Closed):
    """The C++ ABI that a distribution's wheels are built with, by arch and range of versions; the first that fits."""

    by_release: dict[Arch, dict[fields.SpecifierText, Abi]]
    source: fields.Text


class Submodule(Closed):
    """A git submodule of a revision: its repository (`owner/name`) and the commit that the revision needs of it.

    `added`: the revision has no submodule there, and the tree is put beside its own files.
    """

    repository: fields.RepositoryText
    commit: fields.CommitText
    added: bool = False


class PatchSets(Closed):
    """How a plugin's tree keeps patch sets for other components: `<folder>/<repo>/<revision>/*.patch`.

    `repos` says which component is meant by a repo; `summary` is the plugin's own, hand-written file about them.
    `truncated` names patches whose files are cut off, with the number of context lines that are damaged: 1, the last
    line has no end; 2, the line after that one is lost too.
    """

    folder: fields.RelativeText
    summary: fields.RelativeText | None = None
    repos: dict[fields.Name, fields.Name] = Field(min_length=1)
    # Digests of images use the field's old name.
    truncated: dict[fields.Text, Annotated[int, Field(ge=1, le=2)]] = Field({}, serialization_alias="fuzz")


class Edit(Closed):
    """An edit of a tree that a plugin's setup.py would make (`cannery.patches.io.patching`); one of these, and why.

    `imports` a module at the end of the file, where the name `when` is true; `comments_out` a statement; `takes_over`
    functions: a module of ours has them then.
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
    """What is known of a source component at one commit, or of one of its releases, without fetching it.

    `build_requires` is what its build asks for; `chips` are the chips that its ready-made kernels are for (empty: it
    has none); `patches` names, by component, the commits that it keeps patch sets for; `source` is where all this
    was read.
    """

    requires: tuple[fields.RequirementText, ...] = ()
    # The places of the tree that name them (`cannery.sources.requires`): what is built is compared with them.
    requires_from: tuple[fields.Text, ...] = ()
    requires_python: fields.SpecifierText | None = None
    build_requires: tuple[fields.RequirementText, ...] = ()
    submodules: dict[fields.RelativeText, Submodule] = {}
    chips: tuple[fields.ChipText, ...] = ()
    patches: dict[fields.Name, tuple[fields.CommitText, ...]] = {}
    date: fields.DateText | None = None
    note: fields.Text = ""
    source: fields.Text


class Revision(Known):
    """One commit of a repository; `version` is what the distribution calls itself there.

    `release` is the release on the package index that may take its place (`SOURCES=release`): the nearest one.
    """

    version: fields.VersionText
    release: fields.VersionText | None = None


class Release(Known):
    """A release on the package index. With `sdist` its source distribution is built: its wheels are another build."""

    sdist: bool = False


class OnStandIn(Closed):
    """How a native component is built on a stand-in, which has no CANN to compile against, and why.

    `build_env` and `install` replace the component's own values. With `leave_out` a stand-in image is made without it.
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
    """What every kind of component has: a file of images/components."""

    kind: ComponentKind
    summary: fields.LineText
    # Components that come before this one in a profile: it is built or installed with them in place.
    after: tuple[fields.Name, ...] = ()
    # The chips it works on; empty: every one.
    chips: tuple[fields.ChipText, ...] = ()
    imports: tuple[Import, ...] = ()
    libraries: tuple[fields.PathText, ...] = ()
    # What it calls at run time, found on PATH: compilers of what is built on first use (fact T27).
    programs: tuple[fields.WordText, ...] = ()
    env: dict[fields.EnvName, fields.EnvValue] = {}


class Wheels(Part):
    """A distribution that is installed from wheels of a package index."""

    kind: Literal[ComponentKind.WHEELS]
    package: fields.Name | None = None
    extras: tuple[fields.Name, ...] = ()
    # The only index this package may come from (a name in images/indexes.yaml); None is the host's default index.
    index: fields.Name | None = None
    # By arch: versions (a range) whose wanted builds the default index has. They come from there, without the local
    # segment, and so does what `binds` names.
    index_except: dict[Arch, fields.SpecifierText] = {}
    # Local version segment that the wanted build carries on that index (torch: `cpu`), added to the pin.
    local: fields.LocalText | None = None
    # Distributions that follow this one and are bound to the same index.
    binds: tuple[fields.Name, ...] = ()
    metadata: dict[fields.VersionText, StandInMetadata] = {}
    # Of torch_npu: ATB's build in the image's environment has to be that of this ABI (`cannery.recipe.environment`).
    cxx_abi: CxxAbi | None = None

    @model_validator(mode="after")
    def _has_an_index(self) -> Self:
        for name in ("binds", "metadata", "index_except"):
            if self.index is None and getattr(self, name):
                raise FaultError(f"{name} needs an index, and none is given", "name one as index", (name,))
        return self

    def index_on(self, arch: Arch, version: str | None) -> str | None:
        """Return the only index that `version` (None: not pinned) may come from on `arch`; None is the default one.

        A version with a local part names a build of `index`, so it is no exception.
        """
        excepted = self.index_except.get(arch)
        if excepted is None or version is None:
            return self.index
        wanted = Version(version)
        is_except = wanted.local is None and SpecifierSet(excepted).contains(wanted, prereleases=True)
        return None if is_except else self.index


class System(Part):
    """Packages of the base's operating system, by family, and links (path in the image -> target, by family, arch)."""

    kind: Literal[ComponentKind.SYSTEM]
    system: dict[Literal["apt", "dnf"], tuple[fields.PackageText, ...]] = {}
    links: dict[fields.LinkText, dict[Literal["apt", "dnf"], dict[Arch, fields.PathText]]] = {}


class FromSource(Part):
    """What `source` and `native` share: a distribution built from a commit of a repository, or from a release."""

    kind: Literal[ComponentKind.SOURCE, ComponentKind.NATIVE]
    package: fields.Name | None = None
    # A host (a name in images/hosts.yaml) -> `owner/name` there, in the order they are tried.
    hosts: dict[fields.Name, fields.RepositoryText] = {}
    install: Install
    build_env: dict[fields.EnvName, fields.EnvValue] = {}
    # Where the project is in the repository; the repository's top where it is not given.
    subdirectory: fields.RelativeText | None = None
    # What of the repository is exported: files and folders, all when none is named.
    paths: tuple[fields.RelativeText, ...] = ()
    # Links in its tree to other trees of the image: path in this one -> component/path in that one.
    tree_links: dict[fields.RelativeText, fields.RelativeText] = {}
    # Modules that its setup.py imports and does not use; the stage puts empty ones in their place.
    stubs: tuple[fields.ModuleText, ...] = ()
    # Patch sets for other components that its tree keeps, and edits of trees that its setup.py would make.
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
    """A distribution built from its source, for every platform alike."""

    kind: Literal[ComponentKind.SOURCE]


class Native(FromSource):
    """A distribution that is compiled on the target's platform, against its CANN."""

    kind: Literal[ComponentKind.NATIVE]
    # How it is built on a stand-in.
    standin: OnStandIn | None = None
    # The variable that names the chip to the build; its value follows from the target's chip.
    soc_variable: fields.EnvName | None = None
    # Commands that have to run before its build hook, at the top of its tree: argument lists, no shell.
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


# One file of images/components: where a part comes from, how it is installed and checked.
Component = Annotated[Wheels | System | Source | Native, Field(discriminator="kind")]


@cache
def _adapter() -> TypeAdapter[Component]:
    return TypeAdapter(Component)


def parse_component(value: object) -> Component:
    """Return the component that a mapping describes; raise pydantic's `ValidationError` for anything else."""
    return _adapter().validate_python(value)
