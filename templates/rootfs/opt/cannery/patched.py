"""Which patches of the manifest are missing in a tree. Standard library only, Python 3.10 and later; loadable by path.

`report` is for the start of a process that uses the tree: silent when all is well, else one line a file on stderr, by
the first rank alone. Only files are read here, and compared by their hashes: nothing is written, started or imported.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

MANIFEST = "/opt/cannery/manifest.json"
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def faults(patches: Sequence[Mapping[str, Any]], place: Callable[[str], str] = str) -> list[str]:
    """How files differ from their state after each patch, one line a file and patch.

    `place` gives where a path of the manifest is to be looked for.
    """
    rows = [(patch, file) for patch in patches for file in patch["files"]]
    chains: dict[str, list[str | None]] = {}
    found = []
    for _, file in rows:
        chains.setdefault(file["path"], [bare(file["before"])]).append(bare(file["after"]))
    at = dict.fromkeys(chains, 0)
    for patch, file in rows:
        path = file["path"]
        at[path] += 1  # the place of this row among the states of its path
        if fault := file_fault(read(place(path)), chains[path], at[path]):
            found.append(f"{patch['name']} ({patch['component']}): {path} {fault}")
    return found


def bare(digest: str | None) -> str | None:
    """A digest without the algorithm in front."""
    return digest.rpartition(":")[2] if digest else None


def read(path: str) -> bytes | OSError:
    """A file's bytes, or why there are none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        return error


def file_fault(content: bytes | OSError, chain: Sequence[str | None], at: int) -> str:
    """How a file differs from its state after a patch; "" when it does not.

    `chain` has the hashes that it had before the first patch and after each (None: it was not there), `at` this one's.
    """
    gone = isinstance(content, (FileNotFoundError, NotADirectoryError))
    if isinstance(content, OSError) and not gone:
        return f"cannot be read ({content.strerror})"
    found = hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else None
    reached = max((index for index, state in enumerate(chain) if state == found), default=-1)
    if reached >= at:
        return ""
    if gone:
        return "does not exist"
    if chain[at] is None:
        return "still exists, the patch removes it"
    return "is not patched" if reached >= 0 else "has neither the patched nor the original content"


def report(manifest: str = MANIFEST, env: Mapping[str, str] | None = None, stream: TextIO | None = None) -> None:
    """Prints on stderr what is missing in the trees, one line a file; nothing when all is well or on another rank.

    Never raises: this runs when somebody's training starts.
    """
    with suppress(Exception):
        if is_first(os.environ if env is None else env):
            for line in lines(manifest):
                print(f"cannery: {line}", file=stream or sys.stderr, flush=True)


def lines(manifest: str) -> list[str]:
    """The lines that `report` prints."""
    try:
        with open(manifest, "rb") as stream:
            return faults(json.load(stream)["patches"])
    except OSError as error:
        return [f"{manifest} cannot be read ({error.strerror}): whether the patches are in force is not known"]
    except Exception as error:  # a manifest of another form
        return [f"the patches could not be looked at ({type(error).__name__}: {error})"]


def is_first(env: Mapping[str, str]) -> bool:
    """Whether this is the first process of a job: no rank in the environment is another than 0."""
    return all(env.get(name, "").strip().lstrip("0") == "" or not env[name].strip().isdigit() for name in RANKS)
