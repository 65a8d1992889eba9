"""The sources of an image: one layer for each, from a tree or a source distribution, with its patches.

Patches are applied on the host before the build. A stage only copies the patched files over the tree and checks their
hashes. So the manifest can record all of them, and an image does not need patch(1) or git.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.catalog.component import Native
from cannery.errors import FindingsError, UsageError
from cannery.patches.sets import find_set
from cannery.recipe.recipe import SOURCES_HOME, is_left_out
from cannery.vocab import Install, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.lock.lock import Lock
    from cannery.patches.sets import PatchSet
    from cannery.recipe.recipe import ChosenSource, Recipe


# The option for the user's own sets, which must all be applied.
USER_SETS = "PATCHES"


@dataclass(frozen=True)
class PatchedBy:
    """A set of patches for a source: its `origin` for messages, and a `key` that changes if the patches may change."""

    origin: str
    key: str


@dataclass(frozen=True)
class OverlayFile:
    """A changed file of a source tree, with its hex SHA-256 before and after (None: no file).

    `installed` is its path below site-packages, if the source is installed as a wheel.
    """

    path: str
    before: str | None
    after: str | None
    data: bytes = b""
    executable: bool = False
    installed: str | None = None

    @property
    def described(self) -> dict[str, object]:
        """The entry for templates/tools/source.py. The content is in a separate file, named by its hash."""
        return {key: value for key, value in asdict(self).items() if key != "data"}


@dataclass(frozen=True)
class RecordedFile:
    """The manifest's record of a file that a patch changes.

    `before` is the file without any patch, `after` the file with all patches. `module` is its name for imports, or "".
    """

    path: str
    before: str | None
    after: str | None
    module: str = ""


@dataclass(frozen=True)
class Patch:
    """One applied patch or edit: its name, the hex SHA-256 of its content, its origin and its files."""

    name: str
    digest: str
    origin: str
    rev: str
    files: tuple[RecordedFile, ...]


@dataclass(frozen=True)
class NotPatched:
    """A patch of `component` that is not in the image, and why."""

    name: str
    component: str
    reason: str


@dataclass(frozen=True)
class PatchedTree:
    """One patched source: its patches in the order of application, and the changed files.

    `left` are edits that do not fit the user's own tree.
    """

    component: str
    patches: tuple[Patch, ...]
    files: tuple[OverlayFile, ...]
    notes: tuple[str, ...] = ()
    left: tuple[NotPatched, ...] = ()


def unpatched_words(left: Sequence[NotPatched]) -> tuple[str, ...]:
    """Return lines about patches that are not in the image, grouped by component and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in left:
        found.setdefault((one.component, one.reason), []).append(one.name)
    return tuple(f"{name} without patches {', '.join(names)}: {reason}" for (name, reason), names in found.items())


def providers(recipe: Recipe) -> tuple[ChosenSource, ...]:
    """Return the sources of `recipe` that have patches or edits for other sources."""
    return tuple(one for one in recipe.sources if one.component.patch_sets or one.component.edits)


def with_patchers(recipe: Recipe, steps: tuple[SourceStep, ...], sets: Sequence[PatchSet]) -> tuple[SourceStep, ...]:
    """Return `steps` with the patches for each; `sets` are those of images/patches and of the user.

    Raises like `own_sets`.
    """
    keys = {step.name: step.content for step in steps}
    own = own_sets(recipe, sets, {step.name: None if step.release else step.commit for step in steps})
    return tuple(
        replace(step, patched_by=tuple(_patched_by(recipe, step.name, keys, own.get(step.name, ())))) for step in steps
    )


def _patched_by(recipe: Recipe, name: str, keys: Mapping[str, str], own: Sequence[PatchSet]) -> Iterator[PatchedBy]:
    """Yield the patches for source `name`: those of plugins, then `own`. `keys` is {source: digest of its tree}."""
    for one in providers(recipe):
        sets, edits = one.component.patch_sets, [edit for edit in one.component.edits if edit.component == name]
        if one.name in keys and (edits or (sets and name in sets.repos.values())):
            inputs = [keys[one.name], sets.model_dump(mode="json", by_alias=True) if sets else None]
            yield PatchedBy(one.name, _digest([*inputs, [edit.model_dump(mode="json") for edit in edits]]))
    for found in own:
        yield PatchedBy(found.origin, _digest([[file.name, file.digest] for file in found.files]))


def is_own_patch(by: Sequence[PatchedBy]) -> bool:
    """Whether the user's own patches are among them."""
    return any(one.origin.startswith(USER_SETS) for one in by)


def own_sets(
    recipe: Recipe, sets: Sequence[PatchSet], revisions: Mapping[str, str | None]
) -> dict[str, list[PatchSet]]:
    """Return {component: sets from images/patches and PATCHES for its revision}; `revisions` is {component: commit}.

    The user's sets must all be applied. Raises `FindingsError` if PATCHES has sets for a source but none for its
    revision, and `UsageError` if it names a repo that is not a source.
    """
    found: dict[str, list[PatchSet]] = {}
    for origin, repo in dict.fromkeys((one.origin.split("/")[0], one.repo) for one in sets):
        chosen = component_of(recipe, repo)
        group = [one for one in sets if one.repo == repo and one.origin.split("/")[0] == origin]
        if chosen is None:
            if origin == USER_SETS:
                known = {name for one in recipe.sources for name in (one.name, one.package)}
                raise UsageError(f"{origin}: {repo!r} is not a source of {recipe.name}", hint=did_you_mean(repo, known))
            continue
        revision = revisions.get(chosen.name)
        fitting = find_set(group, revision) if revision else None
        if fitting is not None:
            found.setdefault(chosen.name, []).append(fitting)
        elif origin == USER_SETS:
            have = ", ".join(one.rev for one in group)
            raise FindingsError(
                f"{origin}: the patches for {repo} are for {have}, {chosen.name} is at {revision or 'no commit'}",
                where=recipe.file,
                hint=f"pin {chosen.name} to that commit, or port them: build.py patches port {repo} {group[0].rev} …",
            )
    return found


def component_of(recipe: Recipe, repo: str) -> ChosenSource | None:
    """Return the source for the name of a repo: by component, or else by distribution."""
    name = canonicalize_name(repo)
    by_name = (one for one in recipe.sources if canonicalize_name(one.name) == name)
    return next(by_name, next((one for one in recipe.sources if one.package == name), None))


def module_of(path: str, subdirectory: str) -> str:
    """Return the name for importing a file of a tree; "" if it is not a module."""
    inner = path.removeprefix(f"{subdirectory}/") if subdirectory else path
    parts = inner.removeprefix("src/").removesuffix(".py").split("/")
    if not path.endswith(".py") or not all(part.isidentifier() for part in parts):
        return ""
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def words_of(by: Sequence[PatchedBy]) -> str:
    """Return a text for a layer with the origins of its patches; "" without patches."""
    return f", patched by {', '.join(dict.fromkeys(one.origin for one in by))}" if by else ""


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class LocalTree:
    """A folder of the user instead of a commit: digest of its content, HEAD, and whether it differs from HEAD."""

    digest: str
    commit: str | None
    dirty: bool


@dataclass(frozen=True)
class SourceStep:
    """The layer of one source.

    - `file` is its name below sources/ in the rendered folder.
    - `content` identifies its bytes: the commit, the digest of a local tree, or the hash of a source distribution.
    - `env` are variables of the build, `stubs` modules that its setup.py imports but does not use, and `before` are
      commands that run in the top folder of the tree before a native build.
    - `native`: it is compiled on the target's platform. `without` is why native parts are left out, or "".
    - `patched_by` are the patches for it.
    """

    name: str
    package: str
    version: str
    install: Install
    subdirectory: str
    env: tuple[tuple[str, str], ...]
    stubs: tuple[str, ...]
    before: tuple[tuple[str, ...], ...]
    file: str
    content: str
    commit: str | None = None
    release: str | None = None
    dirty: bool = False
    native: bool = False
    without: str = ""
    patched_by: tuple[PatchedBy, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of the user."""
        return self.release is None and self.content != self.commit

    @property
    def is_tree(self) -> bool:
        """Whether it is copied into the image without a build. Its file is then a plain tar."""
        return self.install is Install.TREE and self.release is None

    @property
    def path(self) -> str:
        """The path of the tree in the image. If a wheel is built, only the distribution is in the image."""
        return f"{SOURCES_HOME}/{self.name}"

    def text(self, patched: Sequence[OverlayFile] = ()) -> str:
        """Return the JSON for templates/tools/source.py; `patched` are the changed files of the tree."""
        wanted = ("name", "package", "version", "install", "stubs", "native") + (("before",) if self.before else ())
        value = {key: item for key, item in asdict(self).items() if key in wanted}
        value |= {"subdirectory": self.subdirectory, "env": dict(self.env)}
        value |= {"patched": [file.described for file in patched]} if patched else {}
        return json.dumps(value, indent=1) + "\n"


def source_steps(
    recipe: Recipe, lock: Lock, socs: tuple[str, ...], local: Mapping[str, LocalTree]
) -> Iterator[SourceStep]:
    """Yield the steps of `recipe` in the profile's order.

    Releases with wheels are packages, not steps. Sources that a stand-in leaves out have no step. `socs` are the names
    of the chip in native builds, `local` are the user's trees that replace commits.
    """
    sdists = {package.name: package for package in lock.packages if package.is_sdist}
    for chosen in recipe.sources:
        if is_left_out(recipe, chosen):
            continue
        tree = local.get(chosen.name)
        package = sdists.get(chosen.package) if chosen.release and tree is None else None
        if package is not None:
            yield _step(recipe, chosen, socs, package.file, package.sha256, None)
        elif chosen.commit or tree is not None:
            content = tree.digest if tree else chosen.commit or ""
            yield _step(recipe, chosen, socs, f"{chosen.name}.tar", content, tree)


def _step(  # noqa: PLR0913, PLR0917 - what a step is made of
    recipe: Recipe, chosen: ChosenSource, socs: tuple[str, ...], file: str, content: str, tree: LocalTree | None
) -> SourceStep:
    component = chosen.component
    standin = recipe.standin_of(chosen)
    env = {**component.build_env, **(standin.build_env if standin else {})}
    native = component if isinstance(component, Native) else None
    if native and native.soc_variable and socs:
        env.setdefault(native.soc_variable, socs[0])
    install = recipe.install_of(chosen)
    # A tree is not built.
    is_native = native is not None and standin is None and install is not Install.TREE
    before: tuple[tuple[str, ...], ...] = ()
    if native and is_native:  # the stage fills in the other words of these commands
        soc, home = env.get(native.soc_variable or "", ""), recipe.base.line.toolkit_home
        before = tuple(
            tuple(word.replace("{soc}", soc).replace("{toolkit_home}", home) for word in command)
            for command in native.before
        )
    return SourceStep(
        name=chosen.name,
        package=chosen.package,
        version=chosen.version or "0",
        install=install,
        subdirectory=component.subdirectory or "",
        env=tuple(sorted(env.items())),
        stubs=component.stubs,
        before=before,
        file=file,
        content=content,
        commit=tree.commit if tree else chosen.commit,
        release=None if tree else chosen.release,
        dirty=tree.dirty if tree else False,
        native=is_native,
        without=standin.reason if standin else "",
    )
