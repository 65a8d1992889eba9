"""A plugin's own, hand-written table of what its patches change (patch_summary.yaml), compared with what they do.

Imports and statements without a name need not be listed. Words of the writer's own for an action are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from cannery.errors import UsageError
from cannery.patches.changes import Action
from cannery.patches.scope import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.patches.changes import Member, PatchChanges, RepoChanges

WORTH_LISTING = frozenset({Kind.METHOD, Kind.ATTRIBUTE})
# A changed class is `updated` in the table and a changed method `replaced`: the same thing happened.
CHANGED = frozenset({Action.REPLACED, Action.UPDATED})
# A key without a value is an empty list to the plugin too.
_listed = BeforeValidator(lambda value: value or ())


class _Part(BaseModel):
    """A mapping of the table; other keys of it print nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Listed(_Part):
    """A listed member of a class or of the module."""

    action: str
    name: str


class ListedClass(Listed):
    """A listed class."""

    changes: Annotated[tuple[Listed, ...], _listed] = ()


class Diff(_Part):
    """What is listed of one patch."""

    class_changes: Annotated[tuple[ListedClass, ...], _listed] = ()
    module_changes: Annotated[tuple[Listed, ...], _listed] = ()


class ListedFile(_Part):
    """One patch, by its name."""

    name: str
    diff: Diff


class Version(_Part):
    """A commit and the folder of its patches."""

    rev: str
    dir: str
    files: Annotated[tuple[ListedFile, ...], _listed]


class ListedRepo(_Part):
    """A repository; the plugin prints the version whose `rev` is `current_rev`."""

    repo: str
    current_rev: str
    versions: Annotated[tuple[Version, ...], _listed]


class Table(_Part):
    """A whole patch_summary.yaml."""

    patches: Annotated[tuple[ListedRepo, ...], _listed]


@dataclass(frozen=True)
class Difference:
    """What the table has (`said`) and what is so (`so`); `file` is a patch's name, "" for all of a repository."""

    repo: str
    file: str
    said: str
    so: str

    def __str__(self) -> str:
        place = f"{self.repo}/{self.file}" if self.file else self.repo
        return f"{place}: the summary lists {self.said}; {self.so}"


def read_table(text: str, where: str) -> Table:
    """Read a patch_summary.yaml, scalars as they are written; `where` is how messages call the file.

    Raises `UsageError` for broken YAML and for fields that are missing or of another form.
    """
    hint = "see the fields of patch_summary.yaml in the plugin's quick_start"
    try:
        return Table.model_validate(yaml.load(text, Loader=yaml.BaseLoader))  # noqa: S506 - it makes texts alone
    except yaml.YAMLError as error:
        raise UsageError(f"is no YAML: {error}", where=where, hint=hint) from error
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        field = ".".join(map(str, found["loc"])) or "the file"
        raise UsageError(f"{field}: {found['msg']}", where=where, hint=hint) from error


def differences(computed: Iterable[RepoChanges], table: Table) -> Iterator[Difference]:
    """Give where the table differs from what was computed, by repository and patch.

    Repositories and versions of the table that are not in `computed` are not compared.
    """
    for repo in computed:
        versions = [
            version
            for entry in table.patches
            if entry.repo == repo.repo
            for version in entry.versions
            if version.dir == repo.rev or version.rev.startswith(repo.rev)
        ]
        if not versions:
            yield Difference(repo.repo, "", f"nothing for {repo.rev}", "there are patches for it")
            continue
        listed = {file.name: file.diff for version in versions for file in version.files}
        for patch in repo.patches:
            if patch.name not in listed:
                yield Difference(repo.repo, patch.name, "nothing of this patch", f"it changes {_all(patch)}")
                continue
            for said, so in _of_patch(_entries(listed[patch.name]), patch):
                yield Difference(repo.repo, patch.name, said, so)
        for name in listed.keys() - {patch.name for patch in repo.patches}:
            yield Difference(repo.repo, name, "a patch of this name", f"{repo.rev} has none")


def _entries(diff: Diff) -> dict[str, str]:
    """Return {name: action} of what is listed of a patch; members of a class as `Class.name`."""
    members = {f"{one.name}.{inner.name}": inner.action for one in diff.class_changes for inner in one.changes}
    classes = {one.name: one.action for one in diff.class_changes}
    return {**members, **{one.name: one.action for one in diff.module_changes}, **classes}


def _of_patch(listed: Mapping[str, str], patch: PatchChanges) -> Iterator[tuple[str, str]]:
    """Give (what is listed, what is so) of one patch."""
    wanted = _changes(patch)
    every = wanted | _changes(patch, only_worth=False)
    for name, action in listed.items():
        if name not in every:
            yield f"{name} as {action}", "the patch does not change it"
        elif action in set(Action) and action != every[name] and not {Action(action), every[name]} <= CHANGED:
            yield f"{name} as {action}", f"it is {every[name]}"
    for name, real in wanted.items():
        if name not in listed:
            yield f"no {name}", f"it is {real}"


def _changes(patch: PatchChanges, *, only_worth: bool = True) -> dict[str, Action]:
    """Return {name: action} of what a patch changes: with `only_worth`, what a table has to list of it.

    Of a class that is new or gone, the members need not be listed.
    """

    def named(members: Iterable[Member], prefix: str = "") -> dict[str, Action]:
        kept = (one for one in members if not only_worth or (one.kind in WORTH_LISTING and one.name != "__doc__"))
        return {f"{prefix}{one.name}": one.action for one in kept}

    found: dict[str, Action] = {}
    for file in patch.files:
        found |= named(file.module_members)
        for one in file.classes:
            found[one.name] = one.action
            if one.action in CHANGED or not only_worth:
                found |= named(one.members, f"{one.name}.")
    return found


def _all(patch: PatchChanges) -> str:
    return ", ".join(_changes(patch)) or ", ".join(file.path for file in patch.files)
