"""What patches change, by class and function, and where a plugin's own, hand-written table names something else.

That table is patch_summary.yaml in the form of verl_npu. Imports and attributes need not be listed in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from cannery.errors import UsageError
from cannery.patches.syntax import Action, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cannery.patches.syntax import Change

WORTH_LISTING = frozenset({Kind.CLASS, Kind.METHOD})
WHOLE = frozenset({Action.ADDED, Action.DELETED})


@dataclass(frozen=True)
class FileChanges:
    """A file that a patch changes; `names` are empty of one that is not Python, or has changes of another kind."""

    path: str
    action: Action
    names: tuple[Change, ...]


@dataclass(frozen=True)
class PatchChanges:
    """What one patch changes: the repo and revision of its set, who keeps that, and its name without `.patch`."""

    repo: str
    rev: str
    keeper: str
    name: str
    files: tuple[FileChanges, ...]


@dataclass(frozen=True)
class Listed:
    """What a plugin's table has for one commit of a repo: {patch: names}; a member of a class is `Class.member`."""

    repo: str
    rev: str
    folder: str
    names: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Difference:
    """What the table has (`said`) and what is so (`so`); `file` is a patch's name."""

    repo: str
    file: str
    said: str
    so: str

    def __str__(self) -> str:
        return f"{self.repo}/{self.file}: the summary lists {self.said}; {self.so}"


def summary_lines(patches: Iterable[PatchChanges]) -> Iterator[str]:
    """Give a line for each set, file and changed name."""
    title = ""
    for patch in patches:
        if title != (title := f"{patch.repo} {patch.rev} ({patch.keeper})"):
            yield title
        for file in patch.files:
            yield f"  {patch.name}: {file.path} ({file.action})"
            for one in outermost(file.names):
                yield f"    {one.action:<8} {'class ' if one.kind is Kind.CLASS else ''}{one.name}"


def outermost(names: Sequence[Change]) -> tuple[Change, ...]:
    """Return changes without the members of classes that are new or gone."""
    whole = {one.name for one in names if one.kind is Kind.CLASS and one.action in WHOLE}
    return tuple(one for one in names if one.name.rpartition(".")[0] not in whole)


def read_table(text: str, where: str) -> tuple[Listed, ...]:
    """Read a patch_summary.yaml, scalars as they are written; `where` is how messages call the file.

    Keys that the plugin does not print are ignored. Raises `UsageError` for what is not such a file.
    """
    try:
        value = yaml.BaseLoader(text).get_single_data()
        return tuple(
            Listed(entry["repo"], version["rev"], version["dir"], dict(map(_listed, version["files"] or ())))
            for entry in value["patches"] or ()
            for version in entry["versions"] or ()
        )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        hint = "see the fields of patch_summary.yaml in the plugin's quick_start"
        raise UsageError(f"does not have verl_npu's form: {error}", where=where, hint=hint) from error


def _listed(value: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """Return a patch's name and what is listed of it."""
    classes, members = (value["diff"].get(key) or () for key in ("class_changes", "module_changes"))
    inside = [f"{one['name']}.{part['name']}" for one in classes for part in one.get("changes") or ()]
    return value["name"], frozenset([*(one["name"] for one in (*classes, *members)), *inside])


def differences(patches: Iterable[PatchChanges], table: Sequence[Listed]) -> Iterator[Difference]:
    """Give where the table differs from what patches change. Patches that only the table has are not compared."""
    for patch in patches:
        found = [
            one.names[patch.name]
            for one in table
            if one.repo == patch.repo
            and (one.folder == patch.rev or one.rev.startswith(patch.rev))
            and patch.name in one.names
        ]
        if not found:
            yield Difference(patch.repo, patch.name, f"nothing of this patch for {patch.rev}", "it is in the set")
            continue
        listed = frozenset[str]().union(*found)
        changes = [one for file in patch.files for one in file.names]
        for name in sorted(listed - {one.name for one in changes}):
            yield Difference(patch.repo, patch.name, name, "the patch does not change it")
        for one in outermost(changes):
            if one.kind in WORTH_LISTING and one.name not in listed:
                yield Difference(patch.repo, patch.name, f"no {one.name}", f"it is {one.action}")
