"""The checks of patches: the patched files have the patched content, and a process uses their functions.

`import.patch.<name>` needs no NPU, writes nothing, and runs in the same few children as the other imports.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import patched
from patched import Look, looks
from verifying.child import Answer, program_path
from verifying.image import Image
from verifying.leftovers import ours
from verifying.outcome import Outcome, failed, judged, passed, skipped

LOOK = program_path("patch")
WORDS = {
    "other": "is {what} of {file}, line {line}; recorded is {path}",
    "text": "of {file}, line {line}, is not the recorded text",
    "absent": "is not there; recorded is {path}",
    "none": "is no function but of type {what}; recorded is {path}",
    "wrapped": "is called through {what} of {file}, line {line}",
    "unmet": "is under a condition that is not met here",
    "deleted": "is deleted by the file itself",
    "hidden": "is inside what its decorator made of it, where only its file can be proved",
}


def patch_id(name: str) -> str:
    """The check of a patch by its name."""
    return f"import.patch.{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}"


def with_functions(patch: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The files of a patch that are modules and have functions of it."""
    return [file for file in patch["files"] if file.get("module") and file.get("functions")]


def patch_ids(manifest: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Check id → patches, of those with functions; patches of one name for two components share a check."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for patch in manifest["patches"]:
        if with_functions(patch):
            found.setdefault(patch_id(patch["name"]), []).append(patch)
    return found


def not_looked_at(image: Image, file: Mapping[str, Any]) -> str:
    """Why the module of a file is not imported here; "" when it is."""
    return str(file.get("standin", "")) if image.manifest["base"]["kind"] == "standin" else ""


def patch_files(image: Image, name: str) -> list[Mapping[str, Any]]:
    """The files whose modules the check imports."""
    patches = patch_ids(image.manifest)[name]
    return [file for patch in patches for file in with_functions(patch) if not not_looked_at(image, file)]


def patch_skip(image: Image, name: str) -> Outcome | None:
    """The skip of a check that has nothing to import on a stand-in; None when it has."""
    if patch_files(image, name):
        return None
    files = [file for patch in patch_ids(image.manifest)[name] for file in with_functions(patch)]
    reasons = dict.fromkeys(f"{file['module']}: {not_looked_at(image, file)}" for file in files)
    return skipped(f"stand-in: {'; '.join(reasons)}")


def patch_tasks(image: Image, name: str) -> list[dict[str, Any]]:
    """The worker's tasks of a check, one a file."""
    hashes = patched.recorded(image.manifest["patches"])
    return [
        {
            "do": "patch",
            "module": file["module"],
            "path": image.path(file["path"]),
            "functions": {item["name"]: hashes[file["path"], item["name"]] for item in file["functions"]},
            "look": LOOK,
            "reader": os.path.abspath(patched.__file__),
        }
        for file in patch_files(image, name)
    ]


def patch_outcome(image: Image, name: str, answers: Sequence[Answer], import_failed: Any) -> Outcome:
    """Judges a patch by what became of its tasks. `import_failed` makes the failure of a module that did not load."""
    faults, notes, details, count = [], [], [], 0
    files = patch_files(image, name)
    for file, answer in zip(files, answers, strict=True):
        count += len(file["functions"])
        if not answer.ok:
            bad = import_failed(image, answer)
            faults.append(f"{file['module']} does not import: {bad.message}")
            details += bad.details
        elif os.path.realpath(answer.result["file"]) != os.path.realpath(image.path(file["path"])):
            found = image.shown(answer.result["file"]) or "a folder without code"
            faults.append(f"{file['module']} comes from {found}, not from {file['path']}, which is patched")
        else:
            faults += [words(image, file, item) for item in answer.result["strange"]]
            notes += [words(image, file, item) for item in answer.result["notes"]]
            count -= sum(item["how"] != "wrapped" for item in answer.result["notes"])
    looked = [file["path"] for file in files]
    every = [file for patch in patch_ids(image.manifest)[name] for file in with_functions(patch)]
    notes += [
        f"not imported on a stand-in: {file['module']} ({file['standin']})"
        for file in every
        if file["path"] not in looked
    ]
    outcome = judged(faults, "; ".join([f"{count} functions in use, of {', '.join(looked)}", *notes]))
    return failed(outcome.message, [*outcome.details, *details]) if faults else outcome


def words(image: Image, file: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """One function and how it departs, as text."""
    place = image.shown(item.get("file", ""))
    form = WORDS[item["how"]]
    text = form.format(what=item.get("what"), file=place, line=item.get("line"), path=file["path"])
    return f"{file['module']}: {item['name']} {text}"


def patches_check(image: Image) -> Outcome:
    """Every patched file has the patched content.

    For a tree that a user mounted over the image's, the missing patches are listed. A copy that an installer put in
    front of a tree is reported by static.shadow.
    """
    patches, left_out = image.manifest["patches"], image.manifest.get("patches_left_out", ())
    notes = [f"{item['name']} ({item['component']}) left out: {item['reason']}" for item in left_out]
    if not patches:
        return passed("; ".join(["the manifest lists no patches", *notes]))
    found = looks(patches, image.path)
    faults = list(tree_faults(image, found))
    faults += [f"{of(look)}: {look.file['path']} {what}" for look in found if (what := fault_of(look))]
    return judged(faults, "; ".join([f"{len(patches)} patches in force, {len(found)} files", *notes]))


def of(look: Look) -> str:
    """The patch of a file, and what it patches."""
    return f"{look.patch['name']} ({look.patch['component']})"


def fault_of(look: Look) -> str:
    """How a patched file departs from its state after the patch; "" when it does not."""
    return f"{look.fault}, but has the functions of the patch" if look.fault and look.whole else look.fault


def tree_faults(image: Image, found: Sequence[Look]) -> Iterator[str]:
    """The patches that a tree lacks when another folder is mounted there, or when it has none of its patches."""
    for source in image.manifest["sources"]:
        path, component = source["path"], source["component"]
        inside = [look for look in found if path and look.file["path"].startswith(f"{path}/")]
        names = list(dict.fromkeys(look.patch["name"] for look in inside if look.patch["component"] == component))
        lacking = [name for name in names if any(look.patch["name"] == name and not look.whole for look in inside)]
        mounted = path is not None and image.exists(path) and not ours(image, path)
        if lacking and (mounted or lacking == names):
            why = " (another folder is mounted there)" if mounted else ""
            yield f"the tree at {path} lacks {len(lacking)} of {len(names)} patches: {', '.join(lacking)}{why}"
