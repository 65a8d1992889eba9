"""The check of patches as files: each patched file has the patched content, and nothing else stands in its place."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from patched import Look, looks, root_of
from verifying.compiled import stale_pyc
from verifying.image import Image
from verifying.leftovers import ours
from verifying.outcome import Outcome, judged, passed


def patches_check(image: Image) -> Outcome:
    """Every patched file has the patched content, and so has the .pyc that Python would run in its place.

    A tree that a user mounted over the image's is told by the patches that it lacks, a copy of a patched module that
    an installer put in front of its tree by its file.
    """
    patches, left_out = image.manifest["patches"], image.manifest.get("patches_left_out", ())
    told = [f"{item['name']} ({item['component']}) left out: {item['reason']}" for item in left_out]
    if not patches:
        return passed("; ".join(["the manifest lists no patches", *told]))
    found = looks(patches, image.path)
    faults = list(tree_faults(image, found))
    faults += [f"{of(look)}: {look.file['path']} {what}" for look in found if (what := fault_of(look))]
    faults += [f"{of(look)}: {what}" for look in found if (what := copy_fault(image, look))]
    return judged(faults, "; ".join([f"{len(patches)} patches in force, {len(found)} files", *told]))


def of(look: Look) -> str:
    """The patch of a file, and what it patches."""
    return f"{look.patch['name']} ({look.patch['component']})"


def fault_of(look: Look) -> str:
    """How a patched file departs from its state after the patch, what is compiled of it included; "" if in nothing."""
    if look.fault:
        return f"{look.fault}, but has the functions of the patch" if look.whole else look.fault
    if look.file["after"] is not None and stale_pyc(look.path):
        return "is patched, but its .pyc is of another source: the patch is not in force"
    return ""


def tree_faults(image: Image, found: Sequence[Look]) -> Iterator[str]:
    """What the trees lack that are not the image's: another folder is mounted there, or no patch at all is in it."""
    for source in image.manifest["sources"]:
        path, component = source["path"], source["component"]
        inside = [look for look in found if path and look.file["path"].startswith(f"{path}/")]
        names = list(dict.fromkeys(look.patch["name"] for look in inside if look.patch["component"] == component))
        lacking = [name for name in names if any(look.patch["name"] == name and not look.whole for look in inside)]
        mounted = path is not None and image.exists(path) and not ours(image, path)
        if lacking and (mounted or lacking == names):
            why = " (another folder is mounted there)" if mounted else ""
            yield f"the tree at {path} lacks {len(lacking)} of {len(names)} patches: {', '.join(lacking)}{why}"


def copy_fault(image: Image, look: Look) -> str:
    """Of a patched module that stands in a tree: what is wrong with the copy of it in site-packages; "" without one.

    `pip install` of another release leaves the tree as it is, and import takes the release.
    """
    root = root_of(look.file)
    copy = os.path.join(image.site, look.file["path"][len(root) + 1 :]) if root else ""
    if not copy or not os.path.exists(copy) or os.path.realpath(copy) == os.path.realpath(look.path):
        return ""
    (other,) = looks([only(look)], lambda _: copy)
    return f"{image.shown(copy)} was installed beside the tree and {other.fault}" if other.fault else ""


def only(look: Look) -> Mapping[str, Any]:
    """The patch with that one of its files."""
    return {**look.patch, "files": [look.file]}
