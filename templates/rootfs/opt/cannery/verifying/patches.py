"""The checks of patches: the patched files have the patched content, and a process imports them from there.

`import.patch.<name>` needs no NPU, writes nothing, and runs in the same few children as the other imports.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from patched import looks
from verifying.child import Answer
from verifying.image import Image
from verifying.outcome import Outcome, failed, judged, passed, skipped


def patch_id(name: str) -> str:
    """The check of a patch by its name."""
    return f"import.patch.{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}"


def patch_ids(manifest: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Check id → the modules that its patches change; patches of one name for two components share a check."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for patch in manifest["patches"]:
        for file in patch["files"]:
            if file.get("module"):
                found.setdefault(patch_id(patch["name"]), []).append(file)
    return found


def reason(image: Image, file: Mapping[str, Any]) -> str:
    """Why a module is not imported here; "" when it is."""
    return str(file.get("standin", "")) if image.manifest["base"]["kind"] == "standin" else ""


def patch_files(image: Image, name: str) -> list[Mapping[str, Any]]:
    """The files whose modules the check imports."""
    return [file for file in patch_ids(image.manifest)[name] if not reason(image, file)]


def patch_skip(image: Image, name: str) -> Outcome | None:
    """The skip of a check that has nothing to import on a stand-in; None when it has."""
    if patch_files(image, name):
        return None
    files = patch_ids(image.manifest)[name]
    return skipped("stand-in: " + "; ".join(dict.fromkeys(f"{file['module']}: {file['standin']}" for file in files)))


def patch_tasks(image: Image, name: str) -> list[dict[str, Any]]:
    """The worker's tasks of a check, one a module."""
    return [{"do": "patch", "module": file["module"], "attributes": []} for file in patch_files(image, name)]


def patch_outcome(image: Image, name: str, answers: Sequence[Answer], import_failed: Any) -> Outcome:
    """Judges a patch by what became of its tasks. `import_failed` makes the failure of a module that did not load."""
    faults: list[str] = []
    details: list[str] = []
    files = patch_files(image, name)
    for file, answer in zip(files, answers, strict=True):
        if not answer.ok:
            bad = import_failed(image, answer)
            faults.append(f"{file['module']} does not import: {bad.message}")
            details += bad.details
        elif os.path.realpath(answer.result["file"]) != os.path.realpath(image.path(file["path"])):
            found = image.shown(answer.result["file"]) or "a folder without code"
            faults.append(f"{file['module']} comes from {found}, not from {file['path']}, which is patched")
    notes = [f"imported from {', '.join(file['path'] for file in files)}"]
    left = [file for file in patch_ids(image.manifest)[name] if reason(image, file)]
    notes += [f"not imported on a stand-in: {file['module']} ({file['standin']})" for file in left]
    outcome = judged(faults, "; ".join(notes))
    return failed(outcome.message, [*outcome.details, *details]) if faults else outcome


def patches_check(image: Image) -> Outcome:
    """Every patched file has the patched content, also in a tree that a user mounted over the image's.

    A copy that an installer put in front of a tree is reported by static.shadow.
    """
    patches, left_out = image.manifest["patches"], image.manifest.get("patches_left_out", ())
    notes = [f"{item['name']} ({item['component']}) left out: {item['reason']}" for item in left_out]
    if not patches:
        return passed("; ".join(["the manifest lists no patches", *notes]))
    found = looks(patches, image.path)
    faults = [
        f"{look.patch['name']} ({look.patch['component']}): {look.file['path']} {look.fault}"
        for look in found
        if look.fault
    ]
    return judged(faults, "; ".join([f"{len(patches)} patches in force, {len(found)} files", *notes]))
