"""A plugin's own, hand-written table of what its patches change (patch_summary.yaml), compared with what they do.

Imports and statements without a name need not be listed. Words of the writer's own for an action are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from cannery.errors import UsageError
from cannery.patches.changes import Action
from cannery.patches.scope import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cannery.patches.changes import Member, PatchChanges, RepoChanges

WORTH_LISTING = frozenset({Kind.METHOD, Kind.ATTRIBUTE})
# A changed class is `updated` in the table and a changed method `replaced`: the same thing happened.
CHANGED = frozenset({Action.REPLACED, Action.UPDATED})


@dataclass(frozen=True)
class Version:
    """The patches for one commit: `files` are {patch: {changed name: action}}.

    A name is that of the module's member, `class Name`, or `Class.member`.
    """

    repo: str
    rev: str
    folder: str
    files: Mapping[str, Mapping[str, str]]


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


def read_table(text: str, where: str) -> tuple[Version, ...]:
    """Read a patch_summary.yaml, scalars as they are written; `where` is how messages call the file.

    Keys that the plugin does not print are ignored. Raises `UsageError` for what is not such a file.
    """
    try:
        value = yaml.BaseLoader(text).get_single_data()
        return tuple(
            Version(entry["repo"], version["rev"], version["dir"], dict(map(_file, version["files"] or ())))
            for entry in value["patches"] or ()
            for version in entry["versions"] or ()
        )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        hint = "see the fields of patch_summary.yaml in the plugin's quick_start"
        raise UsageError(f"does not have verl_npu's form: {error}", where=where, hint=hint) from error


def _file(value: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return a patch's name and {changed name: action} of what is listed of it."""
    classes, members = (value["diff"].get(key) or () for key in ("class_changes", "module_changes"))
    found = {_named(one): one["action"] for one in members}
    for one in classes:
        found[f"class {one['name']}"] = one["action"]
        found |= {f"{one['name']}.{part['name']}": part["action"] for part in one.get("changes") or ()}
    return value["name"], found


def _named(member: Mapping[str, str]) -> str:
    return f"class {member['name']}" if member.get("kind") == Kind.CLASS else member["name"]


def differences(computed: Iterable[RepoChanges], table: Sequence[Version]) -> Iterator[Difference]:
    """Give where the table differs from what was computed, by repository and patch.

    Repositories and versions of the table that are not in `computed` are not compared.
    """
    for repo in computed:
        versions = [
            one for one in table if one.repo == repo.repo and (one.folder == repo.rev or one.rev.startswith(repo.rev))
        ]
        if not versions:
            yield Difference(repo.repo, "", f"nothing for {repo.rev}", "there are patches for it")
            continue
        listed = {name: entries for version in versions for name, entries in version.files.items()}
        for patch in repo.patches:
            if patch.name not in listed:
                yield Difference(repo.repo, patch.name, "nothing of this patch", f"it changes {_all(patch)}")
                continue
            for said, so in _of_patch(listed[patch.name], patch):
                yield Difference(repo.repo, patch.name, said, so)
        for name in listed.keys() - {patch.name for patch in repo.patches}:
            yield Difference(repo.repo, name, "a patch of this name", f"{repo.rev} has none")


def _of_patch(listed: Mapping[str, str], patch: PatchChanges) -> Iterator[tuple[str, str]]:
    """Give (what is listed, what is so) of one patch."""
    wanted = _changes(patch)
    every = wanted | _changes(patch, only_worth=False)
    for name, action in listed.items():
        if name not in every:
            outer = f"class {name.rpartition('.')[0]}"
            if outer in listed and outer not in every:
                continue  # the class itself is reported
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
            found[f"class {one.name}"] = one.action
            if one.action in CHANGED or not only_worth:
                found |= named(one.members, f"{one.name}.")
    return found


def _all(patch: PatchChanges) -> str:
    return ", ".join(_changes(patch)) or ", ".join(file.path for file in patch.files)
