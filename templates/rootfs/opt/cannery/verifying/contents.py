"""The check of what is in the files: as recorded by their distributions and the manifest."""

import base64
import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from verifying.compiled import by_source, stale
from verifying.distributions import Recorded, all_records, records
from verifying.image import VENV, Entry, Image, digest_of
from verifying.outcome import Outcome, judged
from verifying.strangers import of_patches, stranger_faults

# Bytes. Above are shared libraries and data (1.4 of 1.9 GiB, but 100 of 35,000 files), where reading costs most from a
# cold disk and a changed file nearly always has another size. 35,000 files, warm, 2 busy cores: sizes alone 0.8 s,
# hashes below 1 MiB 2.1 s, all hashes 4.1 s; comparing 20,000 .pyc with what is read anyway adds 0.7 s.
HASH_BELOW = 1 << 20


class Piece(NamedTuple):
    """A file to look at: the rows of those that own it, its .pyc, its entry (None: not in the venv), what it is."""

    rows: Sequence[Recorded]
    compiled: Sequence[str]
    entry: Entry | None
    program: bool  # a console script


def files_check(image: Image) -> Outcome:
    """Every file is as its RECORD says (size; hash below 1 MiB), no .pyc is of another source, no file is a stranger.

    Console scripts can be executed, and the files of the manifest's checks are as it says.
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
    patched, wanted, compiled = of_patches(image), records(image), by_source(entries)
    owners: dict[str, list[Recorded]] = defaultdict(list)
    for name, rows in all_records(image).items():
        for row in rows or ():
            if row.path in patched or row.path.endswith((".pyc", "/RECORD")):
                continue
            if name in wanted:
                owners[row.path].append(row)
            elif row.path in compiled and row.path in entries:  # static.wheels tells of it; what Python runs is ours
                owners[row.path].append(row._replace(digest="", size=None))
    programs = image.path(f"{VENV}/bin/")
    for path, rows in owners.items():
        yield Piece(rows, compiled.get(path, ()), entries.get(path), path.startswith(programs))


def altered(piece: Piece) -> str:
    """How a file departs from the rows of those that own it; "" when it is as one says (the one that came last)."""
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
    if any(not row.digest for row in sized) or (size >= HASH_BELOW and not piece.compiled):
        hashes = set()
    return misread(path, hashes, piece.compiled) if hashes or piece.compiled else ""


def misread(path: str, hashes: set[str], compiled: Sequence[str]) -> str:
    """How the content departs from the hashes (none: any will do), or from what was compiled."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if hashes and base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=") not in hashes:
        return "has other content"
    return "is not what runs: its .pyc is of another source" if stale(data, compiled) else ""


def listed_files(image: Image) -> list[str]:
    """Faults of the files that the manifest's checks name."""
    faults = []
    for item in image.manifest["checks"]["files"]:
        if not image.exists(item["path"]):
            faults.append(f"{item['path']} does not exist")
        elif item["sha256"] and not item["sha256"].endswith(digest_of(image.path(item["path"]))):
            faults.append(f"{item['path']} has other content than the manifest says")
    return faults
