"""A patch_summary.yaml with one version more: what `patches new` adds, in the file's own shape (verl_npu's guide)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from cannery.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEAD = "# What the patch sets beside this file change; written by `build.py patches new`.\n"


def with_version(text: str, repo: str, rev: str, folder: str, files: Sequence[Mapping[str, Any]]) -> str:
    """Return the file `text` ("" for none) with the set of `repo` for `rev`, kept in `folder`; it is the current one.

    A version of the same revision is replaced. Raises `UsageError` for a text that is no such file.
    """
    try:
        value = yaml.safe_load(text) or {}
        patches = list(value.get("patches", ()))
        mine = next((one for one in patches if one["repo"] == repo), None)
        versions = [one for one in (mine["versions"] if mine else ()) if one["rev"] != rev]
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        hint = "remove it, or write to another folder with --output"
        raise UsageError(f"patch_summary.yaml is not as verl_npu has it: {error}", hint=hint) from error
    entry = {
        "repo": repo,
        "current_rev": rev,
        "versions": [*versions, {"rev": rev, "dir": folder, "files": list(files)}],
    }
    others = [one for one in patches if one is not mine]
    return HEAD + yaml.safe_dump({"patches": [*others, entry]}, sort_keys=False, allow_unicode=True)
