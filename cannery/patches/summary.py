"""The patch summary: computed changes in the layout that verl_npu prints, as JSON, and as an entry of its yaml.

The layout is the plugin's own ("NPU Patch Summary"), so that the two can be compared. Brackets hold what it does not
have: that a file is not Python, that only its mode, comments or layout changed, and who keeps a set where a repository
has several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cannery.patches.changes import is_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cannery.patches.changes import ClassChange, FileChanges, Member, RepoChanges

TOP = "================================ NPU Patch Summary =================================="
BOTTOM = "============================= NPU Patch Summary End=================================="
GAP = " " * 9


def summary_page(repos: Iterable[RepoChanges]) -> list[str]:
    """Return the whole page for several patch sets, in their order; it names who keeps them if need be."""
    sets = tuple(repos)
    lines = [TOP]
    for repo in sets:
        files = [(one.path, one) for patch in repo.patches for one in patch.files]
        is_one_of_several = sum(one.repo == repo.repo for one in sets) > 1
        lines += summary_lines(repo.repo, files, repo.keeper if is_one_of_several else "")
    return [*lines, "", BOTTOM]


def summary_lines(repo: str, files: Iterable[tuple[str, FileChanges]], keeper: str = "") -> list[str]:
    """Return the section of one repository: (path, changes) of each file, in the order given; `keeper` keeps it."""
    lines = ["", f"================ {repo} Patch Summary{f' ({keeper})' if keeper else ''} ================"]
    for number, (path, changes) in enumerate(files, start=1):
        lines += ["", f"Patch File{number}: {path.replace('/', '.')}", *_file_lines(path, changes)]
    return [*lines, "", f"============ {repo} Patch Summary End =============="]


def _file_lines(path: str, changes: FileChanges) -> Iterator[str]:
    if changes.is_same_text:
        yield f"   ({changes.action}; its mode only)"
    elif not changes.is_python:
        yield f"   ({changes.action}; no Python file)"
    elif not changes.module_members and not changes.classes:
        yield f"   ({changes.action}; comments or layout only)"
    if changes.module_members:
        yield "   Module Changes:"
        yield from _member_lines(changes.module_members)
    module = (path.rpartition(".")[0] if is_python(path) else path).replace("/", ".")
    for number, one in enumerate(changes.classes, start=1):
        yield f"  ({number}) Patch class: {module}.{one.name}"
        if one.members:
            yield "       Class Changes:"
            yield from _member_lines(one.members)


def _member_lines(members: Iterable[Member]) -> Iterator[str]:
    return (f"          - {one.action}{GAP}{one.kind}{GAP}{one.name}" for one in members)


def summary_value(repos: Iterable[RepoChanges]) -> list[dict[str, Any]]:
    """Return the same for JSON: per repository its patches, per patch its files with `path`, `action`, `is_python`.

    `class_changes` and `module_changes` have the form of patch_summary.yaml.
    """
    return [
        {
            "repo": repo.repo,
            "rev": repo.rev,
            "from": repo.keeper,
            "patches": [
                {"name": patch.name, "files": [_file_value(one) for one in patch.files]} for patch in repo.patches
            ],
        }
        for repo in repos
    ]


def _file_value(changes: FileChanges) -> dict[str, Any]:
    return {
        "path": changes.path,
        "action": str(changes.action),
        "is_python": changes.is_python,
        "class_changes": [_class_value(one) for one in changes.classes],
        "module_changes": [_member_value(one) for one in changes.module_members],
    }


def _class_value(change: ClassChange) -> dict[str, Any]:
    value: dict[str, Any] = {"action": str(change.action), "name": change.name}
    return {**value, "changes": [_member_value(one) for one in change.members]} if change.members else value


def _member_value(member: Member) -> dict[str, str]:
    return {"action": str(member.action), "kind": str(member.kind), "name": member.name}


def entry(name: str, files: Sequence[FileChanges]) -> dict[str, Any]:
    """Return the entry of patch_summary.yaml for the patch `name`, for one of its lists `files`.

    Lists that would be empty are left out; `diff` stays, since the plugin reads it.
    """
    classes = [_class_value(one) for changes in files for one in changes.classes]
    members = [_member_value(one) for changes in files for one in changes.module_members]
    lists = {"class_changes": classes, "module_changes": members}
    return {"name": name, "diff": {key: value for key, value in lists.items() if value}}
