"""The checks import.patch.<name>: in a child, the functions of a patch are those that the patched files define.

They need no NPU, write nothing and are done in the same few children as the other imports.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import patched
from verifying.image import Image
from verifying.outcome import Outcome, failed, judged, skipped
from verifying.worker import Answer

LOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "in_patch.py")
WORDS = {
    "other": "is {what} of {file}, line {line}; recorded is {path}",
    "text": "of {file}, line {line}, is not the recorded text",
    "compiled": "of {file}, line {line}, does not run what stands there: its .pyc is of another source",
    "absent": "is not there; recorded is {path}",
    "none": "is no function but of type {what}; recorded is {path}",
    "wrapped": "is called through {what} of {file}, line {line}",
    "unmet": "stands under a condition that is not met here",
    "deleted": "is taken away again by the file itself",
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
    """What is said of one function."""
    place = image.shown(item.get("file", ""))
    form = WORDS[item["how"]]
    said = form.format(what=item.get("what"), file=place, line=item.get("line"), path=file["path"])
    return f"{file['module']}: {item['name']} {said}"
