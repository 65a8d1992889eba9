"""A patch_summary.yaml with one version more: what `patches new` adds, in the file's own shape (verl_npu's guide)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import yaml

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEAD = "# What the patch sets beside this file change; written by `build.py patches new`.\n"
PATCHES, VERSIONS, CURRENT = "patches", "versions", "current_rev"


def with_version(text: str, repo: str, rev: str, folder: str, files: Sequence[Mapping[str, Any]]) -> str:
    """Return the file `text` ("" for none) with the set of `repo` for `rev`, kept in `folder`; it is the current one.

    Versions of the same revision, in full or short, and of the same folder are replaced. The rest of the text stays as
    it is, comments too, where it is written in block style; in another style the comments are lost, but for those on
    top. Raises `UsageError` for a text that is no such file.
    """
    version = {"rev": rev, "dir": folder, "files": list(files)}
    try:
        value = yaml.safe_load(text) or {}
        wanted = _with_version(value, repo, version)
        edited = _edited(text, repo, version)
        if edited is not None and yaml.safe_load(edited) == wanted:
            return edited
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        hint = "remove it, or write to another folder with --output"
        raise UsageError(f"patch_summary.yaml does not have verl_npu's form: {error}", hint=hint) from error
    return _top(text) + _dump(wanted)


def _with_version(value: Mapping[str, Any], repo: str, version: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file's value with the version in the place of the first one that it replaces, or as the last one."""
    entries = [dict(one) for one in value.get(PATCHES, ())]
    mine = next((one for one in entries if one["repo"] == repo), None)
    if mine is None:
        entries.append({"repo": repo, CURRENT: version["rev"], VERSIONS: [version]})
    else:
        old = list(mine[VERSIONS])
        replaced = [index for index, one in enumerate(old) if _is_replaced(one["rev"], one.get("dir"), version)]
        place = replaced[0] if replaced else len(old)
        rest = [one for index, one in enumerate(old) if index > place and index not in replaced]
        mine |= {CURRENT: version["rev"], VERSIONS: [*old[:place], version, *rest]}
    return {**value, PATCHES: entries}


def _is_replaced(rev: object, folder: object, version: Mapping[str, Any]) -> bool:
    return folder == version["dir"] or (bool(rev) and version["rev"].startswith(str(rev)))


@dataclass(frozen=True)
class _Cut:
    """The part of a text from `start` to `end`, and what replaces it."""

    start: int
    end: int
    text: str


def _edited(text: str, repo: str, version: Mapping[str, Any]) -> str | None:
    """Return the text with only that changed which has to be; None where its style leaves no place to do so.

    The caller reads the result again: of what YAML allows, not all is looked for here.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        entry = {"repo": repo, CURRENT: version["rev"], VERSIONS: [version]}
        return (text.rstrip("\n") + "\n" if text.strip() else HEAD) + _dump({PATCHES: [entry]})
    entries = _child(root, PATCHES)
    if not _is_block(entries):
        return None
    mine = next((one for one in entries.value if getattr(_child(one, "repo"), "value", None) == repo), None)
    if mine is None:
        cuts = [_after(text, entries, {"repo": repo, CURRENT: version["rev"], VERSIONS: [version]})]
    else:
        current, versions = _child(mine, CURRENT), _child(mine, VERSIONS)
        if not isinstance(current, yaml.ScalarNode) or not _is_block(versions):
            return None
        cuts = [_Cut(current.start_mark.index, current.end_mark.index, _dump(version["rev"], inline=True))]
        cuts.append(_version_cut(text, versions, version))
    for cut in sorted(cuts, key=lambda one: one.start, reverse=True):
        text = text[: cut.start] + cut.text + text[cut.end :]
    return text


def _version_cut(text: str, versions: yaml.SequenceNode, version: Mapping[str, Any]) -> _Cut:
    for one in versions.value:
        rev, folder = (getattr(_child(one, key), "value", None) for key in ("rev", "dir"))
        if _is_replaced(rev, folder, version):
            body = _dump(version).rstrip("\n").replace("\n", "\n" + " " * one.start_mark.column)
            return _Cut(one.start_mark.index, _end(one), body)
    return _after(text, versions, version)


def _after(text: str, items: yaml.SequenceNode, item: Mapping[str, Any]) -> _Cut:
    """Put an item after the last one of a list in block style, and after a comment in its last line."""
    at = text.find("\n", _end(items))
    at = len(text) if at < 0 else at
    lines = _dump([item]).rstrip("\n").split("\n")
    return _Cut(at, at, "".join(f"\n{' ' * items.start_mark.column}{line}" for line in lines))


def _child(node: yaml.Node, key: str) -> yaml.Node | None:
    """Return the node of a key; None where there is none."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _is_block(node: yaml.Node | None) -> TypeGuard[yaml.SequenceNode]:
    return isinstance(node, yaml.SequenceNode) and not node.flow_style


def _end(node: yaml.Node) -> int:
    """Return where a node's last word ends: the mark of a block itself is after the comments that follow it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)


def _top(text: str) -> str:
    """Return the comments that a text starts with."""
    lines = text.splitlines(keepends=True)
    count = next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join(lines[:count]) or HEAD


def _dump(value: object, *, inline: bool = False) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text.removesuffix("...\n").strip() if inline else text
