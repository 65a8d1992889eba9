"""The checks of files: as distributions or patches recorded them, and none that nothing recorded."""

import base64
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from patched import faults as patch_faults
from verifying.image import VENV, Entry, Image, below, digest_of
from verifying.manifest import source_paths
from verifying.outcome import Outcome, judged, passed
from verifying.packages import Recorded, all_records, distributions, records

COMPILED = re.compile(r"(.*/)__pycache__/([^/]+)\.(cpython-3\d+)(\.opt-[12])?\.pyc", re.DOTALL)


def source_of(path: str) -> str:
    """The source beside a __pycache__ folder that a file in there is named after; "" for other paths."""
    found = COMPILED.fullmatch(path) if path.endswith(".pyc") else None
    return f"{found[1]}{found[2]}.py" if found else ""


SHOWN = 5
NUMBA = re.compile(r".*/__pycache__/[^/]+\.nb[ic]", re.DOTALL)  # where numba keeps what it compiled, when it may write


def stranger_faults(image: Image, paths: Iterable[str]) -> list[str]:
    """One fault that names the first files of the venv that are in no RECORD, those at the top first."""
    found = sorted(strangers(image, paths), key=lambda path: (path.count("/"), path))
    if not found:
        return []
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    what = "file is" if len(found) == 1 else "files are"
    return [f"{len(found)} {what} in no RECORD: {', '.join(map(image.shown, found[:SHOWN]))}{more}"]


def strangers(image: Image, paths: Iterable[str]) -> list[str]:
    """The files of site-packages that no RECORD has, and neither the manifest's patches, checks and sources."""
    places, start = set(paths), f"{image.site}/"
    known = {row.path for rows in all_records(image).values() for row in rows or ()}
    named = of_patches(image) | {image.path(item["path"]) for item in image.manifest["checks"]["files"]}
    sources = list(map(image.path, source_paths(image.manifest)))
    # A recorded file that is gone is a fault of its own; its .pyc is not reported as well.
    notes = {row.path for rows in records(image).values() for row in rows or ()} - named
    has_source = notes | ((known | named) & places)
    # Other checks report these folders: of a name that is not in the manifest, twice there, or without RECORD.
    bare = {item.folder for item in distributions(image) if f"{start}{item.folder}/RECORD" not in places}

    def explained(path: str) -> bool:
        return (
            source_of(path) in has_source
            or path[len(start) :].partition("/")[0] in bare
            or NUMBA.fullmatch(path) is not None
            or below(path, sources)
        )

    return [path for path in places - known - named if path.startswith(start) and not explained(path)]


def of_patches(image: Image) -> set[str]:
    """The files that the manifest's patches change, add or remove."""
    return {image.path(file["path"]) for patch in image.manifest["patches"] for file in patch["files"]}


# Bytes. Above are shared libraries and data (1.4 of 1.9 GiB, but 100 of 35,000 files), where reading costs most from a
# cold disk and a changed file nearly always has another size. 35,000 files, warm, 2 busy cores: sizes alone 0.8 s,
# hashes below 1 MiB 2.1 s, all hashes 4.1 s.
HASH_BELOW = 1 << 20


class Piece(NamedTuple):
    """A file to look at: the rows of those that own it, its entry (None: not in the venv), what it is."""

    rows: Sequence[Recorded]
    entry: Entry | None
    program: bool  # a console script


def files_check(image: Image) -> Outcome:
    """Every file is as in its RECORD (size; hash below 1 MiB), and every file is in a RECORD.

    Console scripts can be executed, and the files of the manifest's checks are as recorded there. A .pyc has the hash
    of its source, which Python compares at each import.
    """
    entries = {entry.path: entry for entry in image.tree(VENV) if not stat.S_ISDIR(entry.mode)}
    faults = [f"{name}: has no RECORD" for name, rows in records(image).items() if rows is None]
    every = list(pieces(image, entries))
    blocks = [every[at : at + 500] for at in range(0, len(every), 500)]
    bad: dict[str, list[str]] = defaultdict(list)
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing lets go of the interpreter's lock
        found = pool.map(lambda block: [altered(piece) for piece in block], blocks)
        for piece, what in zip(every, chain.from_iterable(found), strict=True):
            if what:
                bad[piece.rows[0].owner].append(f"{image.shown(piece.rows[0].path)} {what}")
    for name, all_of_it in bad.items():
        more = f" and {len(all_of_it) - 3} more" if len(all_of_it) > 3 else ""
        faults.append(f"{name}: reinstalled or overwritten: {'; '.join(all_of_it[:3])}{more}")
    faults += stranger_faults(image, entries) + listed_files(image)
    return judged(faults, f"{len(every)} files of {len(records(image))} distributions as recorded, no others")


def pieces(image: Image, entries: Mapping[str, Entry]) -> Iterator[Piece]:
    """All files to look at: the recorded ones, without those that a patch changes, a RECORD itself or a .pyc."""
    patched, programs = of_patches(image), image.path(f"{VENV}/bin/")
    owners: dict[str, list[Recorded]] = defaultdict(list)
    for row in (row for rows in records(image).values() for row in rows or ()):
        if row.path not in patched and not row.path.endswith((".pyc", "/RECORD")):
            owners[row.path].append(row)
    for path, rows in owners.items():
        yield Piece(rows, entries.get(path), path.startswith(programs))


def altered(piece: Piece) -> str:
    """How a file departs from the rows of those that own it; "" when it is as in one of them (the last installed)."""
    rows, path = piece.rows, piece.rows[0].path
    if piece.entry and not stat.S_ISLNK(piece.entry.mode):
        size, mode = piece.entry.size, piece.entry.mode
    else:
        try:
            about = os.stat(path)  # a link, or outside the venv
        except OSError:
            return "is missing"
        size, mode = about.st_size, about.st_mode
    sized = [row for row in rows if row.size is None or row.size == size]
    if not sized:
        return f"has {size} bytes, recorded are {rows[0].size}"
    if piece.program and mode & 0o111 != 0o111:
        return f"cannot be executed (mode {stat.S_IMODE(mode):04o})"
    hashes = {row.digest.partition("=")[2] for row in sized if row.digest.startswith("sha256=")}
    if not hashes or any(not row.digest for row in sized) or size >= HASH_BELOW:
        return ""
    try:
        found = bytes.fromhex(digest_of(path))
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
    """Every patched file has the patched content, also in a tree that a user mounted over the image's.

    A copy that an installer put in front of a tree is reported by static.shadow.
    """
    patches, left_out = image.manifest["patches"], image.manifest.get("patches_left_out", ())
    notes = [f"{item['name']} ({item['component']}) left out: {item['reason']}" for item in left_out]
    if not patches:
        return passed("; ".join(["the manifest lists no patches", *notes]))
    count = sum(len(patch["files"]) for patch in patches)
    good = "; ".join([f"{len(patches)} patches in force, {count} files", *notes])
    return judged(patch_faults(patches, image.path), good)
