"""Patch sets in folders, `<repo>/<revision>/*.patch`: images/patches, and a user's own (PATCHES=folder)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError
from cannery.patches.sets import PatchFile, PatchSet, completed, with_line_feeds
from cannery.plan.sources import USER_SETS
from cannery.util.io.files import BY_OUTPUT, sha256_bytes, unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cannery.catalog.component import PatchSets
    from cannery.sources.io.export import TreeReader

SUFFIX = ".patch"
OURS = "images/patches"
# Other files that may be in the folder: verl_npu's table of the sets, its package marker, and a README.
BESIDE = frozenset({"patch_summary.yaml", "README.md", "__init__.py"})
SHOWN = 3
LAYOUT = "a folder of patch sets is laid out as <repo>/<commit>/<name>.patch"


def folder_sets(images: Path, own: Path | None) -> tuple[PatchSet, ...]:
    """Return the patch sets of images/patches and of the user's folder, in that order.

    Raises `UsageError` for a user's folder without a set and for other files in it, `UnableError` for a file that
    cannot be read.
    """
    found = _sets(images / "patches", OURS)
    if own is None:
        return found
    mine = _sets(own, USER_SETS)
    if not mine:
        raise UsageError(f"{USER_SETS}: there is no patch set in {str(own)!r}", hint=LAYOUT)
    return (*found, *mine)


def _sets(folder: Path, origin: str) -> tuple[PatchSet, ...]:
    by_set: dict[tuple[str, str], dict[str, bytes]] = {}
    strange: list[str] = []
    try:
        for path in _files(folder):
            parts = path.relative_to(folder).parts
            if len(parts) == 3 and path.suffix == SUFFIX and path.is_file():
                if not path.stem.isprintable():
                    what = f"{path.name!a} is not a name for a patch"
                    raise UsageError(what, where=str(path.parent), hint="rename it")
                by_set.setdefault((parts[0], parts[1]), {})[path.stem] = path.read_bytes()
            elif path.name not in BESIDE:
                strange.append("/".join(parts))
    except OSError as error:
        hint = "make it readable for you, or remove it"
        raise UnableError(f"cannot be read: {error.strerror}", where=str(error.filename), hint=hint) from error
    if strange:
        # The user may expect these files to be applied, so they are not ignored.
        more = f" and {len(strange) - SHOWN} more" if len(strange) > SHOWN else ""
        what = f"{', '.join(strange[:SHOWN])}{more} in {origin}: not a patch that would be applied"
        raise UsageError(what, where=str(folder), hint=LAYOUT)
    return tuple(read_set(repo, rev, f"{origin}/{repo}/{rev}", texts) for (repo, rev), texts in sorted(by_set.items()))


def _files(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder` that is not hidden. If `folder` is not a folder, yield nothing."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink() and path.suffix != SUFFIX:
            yield from _files(path)
        else:
            yield path


def read_set(
    repo: str, rev: str, origin: str, texts: Mapping[str, bytes], truncated: Mapping[str, int] | None = None
) -> PatchSet:
    """Return a set from {name: content of the file}. For `truncated`, see `cannery.catalog.component.PatchSets`."""
    files = []
    for name, data in sorted(texts.items()):
        text, lost = with_line_feeds(data), (truncated or {}).get(name, 0)
        is_cut = lost > 0 and not text.endswith(b"\n")
        files.append(PatchFile(name, completed(text, lost) if is_cut else text, sha256_bytes(data)))
    return PatchSet(repo, rev, origin, tuple(files))


def plugin_sets(plugin: str, kept: PatchSets | None, tree: TreeReader) -> dict[str, tuple[PatchSet, ...]]:
    """Return {repo: patch sets in the tree of a plugin}."""
    if kept is None:
        return {}
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for path in tree.paths:
        inner = path.removeprefix(f"{kept.folder}/").split("/")
        if path.startswith(f"{kept.folder}/") and len(inner) == 3 and path.endswith(SUFFIX):
            found.setdefault((inner[0], inner[1]), {})[inner[2].removesuffix(SUFFIX)] = tree.read(path) or b""
    sets: dict[str, tuple[PatchSet, ...]] = {}
    for (repo, rev), texts in sorted(found.items()):
        sets[repo] = (*sets.get(repo, ()), read_set(repo, rev, plugin, texts, kept.truncated))
    return sets


def write_set(folder: Path, texts: Mapping[str, bytes]) -> None:
    """Write {name: content} into a new folder, atomically.

    Raises `UsageError` if the folder is not empty, `UnableError` if it cannot be written.
    """
    part = folder.with_name(f".{folder.name}.cannery")
    try:
        if folder.exists() and any(folder.iterdir()):
            hint = "remove it, or name another --output"
            raise UsageError("there is a patch set already", where=str(folder), hint=hint)
        shutil.rmtree(part, ignore_errors=True)  # left by a killed run
        part.mkdir(parents=True)
        for name, content in texts.items():
            (part / name).write_bytes(content)
        part.replace(folder)
    except OSError as error:
        raise unwritable(error, folder, BY_OUTPUT) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
