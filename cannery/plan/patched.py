"""Which patches the sources of an image get, before anything is fetched, and what became of them, as values.

Patches are applied on the host, before the build: a stage only lays what came of it over the tree, holding the hash of
each file. So the manifest can record all of it, and an image needs neither patch(1) nor git for it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.errors import FindingsError, UsageError
from cannery.patches.sets import find_set
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.patches.sets import PatchSet
    from cannery.patches.syntax import Function
    from cannery.plan.source_step import SourceStep
    from cannery.recipe.recipe import ChosenSource, Recipe

# Where a user's own sets come from: an option, so that nothing of them is passed over in silence.
USER_SETS = "PATCHES"


@dataclass(frozen=True)
class PatchedBy:
    """Who patches a source: `origin` in words, and `key`, which changes when what it brings may change."""

    origin: str
    key: str


@dataclass(frozen=True)
class OverlayFile:
    """A file that is laid over a source's tree; hex SHA-256 before and after, None for a file that is not there.

    `installed` is its place below site-packages where a wheel brings it.
    """

    path: str
    before: str | None
    after: str | None
    data: bytes = b""
    executable: bool = False
    installed: str | None = None

    @property
    def described(self) -> dict[str, object]:
        """What templates/tools/overlay.py reads; the content is beside it, named by its hash."""
        return {key: value for key, value in asdict(self).items() if key != "data"}


@dataclass(frozen=True)
class RecordedFile:
    """What the manifest records of a file that one patch changes.

    `path` is in the tree; `before` is the file without any patch and `after` the file with all of them. `module` is its
    name for an import, "" for what is none; `functions` are those that the patch adds or replaces. `executable` is set
    where the patch changes that, and the image has the tree itself: what a wheel makes of modes is the installer's.
    """

    path: str
    before: str | None
    after: str | None
    module: str = ""
    functions: tuple[Function, ...] = ()
    executable: bool | None = None


@dataclass(frozen=True)
class Patch:
    """One patch, or edit, that is in force: its name, the hex SHA-256 of what it is, where it comes from, its files."""

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
    """What became of one source: its patches in the order in which they were applied, and the files they leave.

    `left` are edits that a tree of the user's has no place for.
    """

    component: str
    patches: tuple[Patch, ...]
    files: tuple[OverlayFile, ...]
    notes: tuple[str, ...] = ()
    left: tuple[NotPatched, ...] = ()


def unpatched_words(left: Sequence[NotPatched]) -> tuple[str, ...]:
    """Return lines about patches that are not in the image, put together by component and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in left:
        found.setdefault((one.component, one.reason), []).append(one.name)
    return tuple(f"{name} without patches {', '.join(names)}: {reason}" for (name, reason), names in found.items())


def providers(recipe: Recipe) -> tuple[ChosenSource, ...]:
    """Return the sources of `recipe` that bring patches or edits for others."""
    return tuple(one for one in recipe.sources if one.component.patch_sets or one.component.edits)


def with_patchers(recipe: Recipe, steps: tuple[SourceStep, ...], sets: Sequence[PatchSet]) -> tuple[SourceStep, ...]:
    """Return `steps` with who patches each; `sets` are those of images/patches and of the user.

    Raises as `own_sets`.
    """
    keys = {step.name: step.content for step in steps}
    own = own_sets(recipe, sets, {step.name: None if step.release else step.commit for step in steps})
    return tuple(
        replace(step, patched_by=tuple(_patched_by(recipe, step.name, keys, own.get(step.name, ())))) for step in steps
    )


def _patched_by(recipe: Recipe, name: str, keys: Mapping[str, str], own: Sequence[PatchSet]) -> Iterator[PatchedBy]:
    """Give who patches source `name`: plugins, then `own`. `keys` has what decides each source's tree."""
    for one in providers(recipe):
        sets, edits = one.component.patch_sets, [edit for edit in one.component.edits if edit.component == name]
        if one.name in keys and (edits or (sets and name in sets.repos.values())):
            inputs = [keys[one.name], sets.model_dump(mode="json", by_alias=True) if sets else None]
            yield PatchedBy(one.name, _digest([*inputs, [edit.model_dump(mode="json") for edit in edits]]))
    for found in own:
        yield PatchedBy(found.origin, _digest([[file.name, file.digest] for file in found.files]))


def is_own_patch(by: Sequence[PatchedBy]) -> bool:
    """Whether patches of the user's own are among them."""
    return any(one.origin.startswith(USER_SETS) for one in by)


def own_sets(
    recipe: Recipe, sets: Sequence[PatchSet], revisions: Mapping[str, str | None]
) -> dict[str, list[PatchSet]]:
    """Return by component the sets among `sets` (images/patches, PATCHES) that are for its revision.

    `revisions` are the commits by component. Raises `FindingsError` where PATCHES has sets for a source
    and none for its revision, `UsageError` where it names a repo that is no source: the user meant them to be applied.
    """
    found: dict[str, list[PatchSet]] = {}
    for origin, repo in dict.fromkeys((one.origin.split("/")[0], one.repo) for one in sets):
        chosen = component_of(recipe, repo)
        group = [one for one in sets if one.repo == repo and one.origin.split("/")[0] == origin]
        if chosen is None:
            if origin == USER_SETS:
                known = {name for one in recipe.sources for name in (one.name, one.package)}
                raise UsageError(f"{origin}: {repo!r} is no source of {recipe.name}", hint=did_you_mean(repo, known))
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
    """Return the source that a repo's name means: a component's name, else the distribution's."""
    name = canonicalize_name(repo)
    by_name = (one for one in recipe.sources if canonicalize_name(one.name) == name)
    return next(by_name, next((one for one in recipe.sources if one.package == name), None))


def module_of(path: str, subdirectory: str) -> str:
    """Return the module that a file of a tree is, as one imports it; "" for what is none."""
    inner = path.removeprefix(f"{subdirectory}/") if subdirectory else path
    parts = inner.removeprefix("src/").removesuffix(".py").split("/")
    if not path.endswith(".py") or not all(part.isidentifier() for part in parts):
        return ""
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def words_of(by: Sequence[PatchedBy]) -> str:
    """Return who patches, in words for a layer; "" when none does."""
    return f", patched by {', '.join(dict.fromkeys(one.origin for one in by))}" if by else ""


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
