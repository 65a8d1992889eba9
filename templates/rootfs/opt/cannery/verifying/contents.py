"""Checks of what is in the files: as recorded by their distributions, the manifest and its patches."""

import base64
import glob
import hashlib
import importlib.util
import os
import stat
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from verifying.distributions import Recorded, records
from verifying.image import VENV, Image, digest_of
from verifying.outcome import Outcome, judged, passed

# Bytes. Above are shared libraries and data (1.4 of 1.9 GiB, but 100 of 35,000 files), where reading costs most from a
# cold disk and a changed file nearly always has another size. 35,000 files, warm, 2 busy cores: sizes alone 0.8 s,
# hashes below 1 MiB 2.1 s, all hashes 4.1 s.
HASH_BELOW = 1 << 20


def files_check(image: Image) -> Outcome:
    """Every file of every distribution is as its RECORD says (size; hash below 1 MiB), and so are the manifest's."""
    sizes = {entry.path: entry.size for entry in image.tree(VENV) if not stat.S_ISLNK(entry.mode)}
    patched = {image.path(file["path"]) for patch in image.manifest["patches"] for file in patch["files"]}
    faults = [f"{name}: has no RECORD" for name, rows in records(image).items() if rows is None]
    owners: dict[str, list[Recorded]] = defaultdict(list)
    for row in chain.from_iterable(rows or () for rows in records(image).values()):
        if row.path not in patched and not row.path.endswith((".pyc", "/RECORD")):
            owners[row.path].append(row)
    every = list(owners.values())
    blocks = [every[at : at + 500] for at in range(0, len(every), 500)]
    bad: dict[str, list[str]] = defaultdict(list)
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing lets go of the interpreter's lock
        found = pool.map(lambda block: [altered(rows, sizes) for rows in block], blocks)
        for rows, what in zip(every, chain.from_iterable(found), strict=True):
            if what:
                bad[rows[0].owner].append(f"{image.shown(rows[0].path)} {what}")
    for name, all_of_it in bad.items():
        more = f" and {len(all_of_it) - 3} more" if len(all_of_it) > 3 else ""
        faults.append(f"{name}: reinstalled or overwritten: {'; '.join(all_of_it[:3])}{more}")
    faults += listed_files(image)
    return judged(faults, f"{len(owners)} files of {len(records(image))} distributions as recorded")


def altered(rows: Sequence[Recorded], sizes: Mapping[str, int]) -> str:
    """How a file departs from the rows of those that own it; "" when it is as one says (the one that came last)."""
    path = rows[0].path
    size = sizes.get(path)
    if size is None:
        try:
            size = os.stat(path).st_size  # a link, or outside the venv
        except OSError:
            return "is missing"
    sized = [row for row in rows if row.size is None or row.size == size]
    if not sized:
        return f"has {size} bytes, recorded are {rows[0].size}"
    hashes = {row.digest.partition("=")[2] for row in sized if row.digest.startswith("sha256=")}
    if size >= HASH_BELOW or not hashes or any(not row.digest for row in sized):
        return ""
    try:
        with open(path, "rb") as file:
            found = hashlib.sha256(file.read()).digest()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if base64.urlsafe_b64encode(found).decode().rstrip("=") in hashes else "has other content"


def listed_files(image: Image) -> list[str]:
    """Faults of the files that the manifest's checks name."""
    faults = []
    for item in image.manifest["checks"]["files"]:
        if not image.exists(item["path"]):
            faults.append(f"{item['path']} does not exist")
        elif item["sha256"] and not item["sha256"].endswith(digest_of(image.path(item["path"]))):
            faults.append(f"{item['path']} has other content than the manifest says")
    return faults


def patches_check(image: Image) -> Outcome:
    """Every patched file has the patched content, and so has the .pyc that Python would run in its place."""
    patches = image.manifest["patches"]
    if not patches:
        return passed("the manifest lists no patches")
    files = [(patch, file, patch_fault(image, file)) for patch in patches for file in patch["files"]]
    faults = [f"{patch['name']} ({patch['component']}): {file['path']} {what}" for patch, file, what in files if what]
    return judged(faults, f"{len(patches)} patches in force, {len(files)} files")


def patch_fault(image: Image, file: Mapping[str, Any]) -> str:
    """How a patched file departs from its state after the patch; "" when it does not."""
    path = image.path(file["path"])
    if not os.path.exists(path):
        return "" if file["after"] is None else "does not exist"
    if file["after"] is None:
        return "still exists, the patch removes it"
    found = digest_of(path)  # the manifest may have the algorithm in front
    if file["after"].endswith(found):
        return "is patched, but its .pyc is of another source: the patch is not in force" if stale_pyc(path) else ""
    if file["before"] and file["before"].endswith(found):
        return "is not patched"
    return "has neither the patched nor the original content"


def stale_pyc(path: str) -> bool:
    """Whether Python would run a hash-based, unchecked .pyc made from another source (PEP 552)."""
    if not path.endswith(".py"):
        return False
    folder, name = os.path.split(path)
    with open(path, "rb") as file:
        wanted = importlib.util.source_hash(file.read())
    for compiled in glob.glob(f"{glob.escape(folder)}/__pycache__/{glob.escape(name[:-3])}.*.pyc"):
        with open(compiled, "rb") as file:
            head = file.read(16)
        flags = int.from_bytes(head[4:8], "little")  # bit 0: by hash, bit 1: checked
        if len(head) == 16 and flags == 1 and head[8:] != wanted:
            return True
    return False
