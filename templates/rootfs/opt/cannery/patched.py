"""Which patches of the manifest a tree lacks. Standard library only, Python 3.10 and later; it can be loaded by path.

`report` is for the start of a process that uses the tree: silent when all is well, else one line a component on stderr,
by the first rank alone. `verify.py --only static.patches` lists every file. Only files are read here, and compared by
their hashes: nothing is written, started or imported.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

MANIFEST = "/opt/cannery/manifest.json"
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


class Look(NamedTuple):
    """One file of a patch, and how it departs from its state after the patch; "" when it does not."""

    patch: Mapping[str, Any]
    file: Mapping[str, Any]
    fault: str


def looks(patches: Sequence[Mapping[str, Any]], place: Callable[[str], str] = str) -> list[Look]:
    """Every file of every patch, in order. `place` gives where a path of the manifest is to be looked for."""
    rows = [(patch, file) for patch in patches for file in patch["files"]]
    chains: dict[str, list[str | None]] = {}
    at: list[int] = []  # of each row: its place among the states of its path
    for _, file in rows:
        chain = chains.setdefault(file["path"], [bare(file["before"])])
        at.append(len(chain))
        chain.append(bare(file["after"]))
    return [
        Look(patch, file, file_fault(read(place(file["path"])), chains[file["path"]], index))
        for (patch, file), index in zip(rows, at, strict=True)
    ]


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
    """How a file departs from its state after a patch; "" when it does not.

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


def report(
    manifest: str = MANIFEST,
    env: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Prints on stderr what the trees lack, one line a component; nothing when all is well or on another rank.

    Never raises: this runs when somebody's training starts.
    """
    with suppress(Exception):
        if is_first(os.environ if env is None else env):
            for line in lines(manifest, sys.modules if modules is None else modules):
                print(f"cannery: {line}", file=stream or sys.stderr, flush=True)


def lines(manifest: str, modules: Mapping[str, Any]) -> list[str]:
    """The lines that `report` prints; `modules` are what the process has imported."""
    try:
        with open(manifest, "rb") as stream:
            patches = json.load(stream)["patches"]
        names = dict.fromkeys(patch["component"] for patch in patches)
        components = [[patch for patch in patches if patch["component"] == name] for name in names]
        return [line for mine in components for line in (lacking(mine), elsewhere(mine, modules)) if line]
    except OSError as error:
        return [f"{manifest} cannot be read ({error.strerror}): whether the patches are in force is not known"]
    except Exception as error:  # a manifest of another form
        return [f"the patches could not be looked at ({type(error).__name__}: {error})"]


def lacking(patches: Sequence[Mapping[str, Any]]) -> str:
    """Which patches of one component are not in force, in one line; "" when all are."""
    bad = [look for look in looks(patches) if look.fault]
    if not bad:
        return ""
    names = dict.fromkeys(look.patch["name"] for look in bad)
    why = f"{bad[0].file['path']} {bad[0].fault}" + ("; …" if len(bad) > 1 else "")
    return f"{patches[0]['component']} lacks {len(names)} of {len(patches)} patches: {', '.join(names)} ({why})"


def elsewhere(patches: Sequence[Mapping[str, Any]], modules: Mapping[str, Any]) -> str:
    """That the process has imported a patched package from another folder, in one line; "" when it has not."""
    for file in (file for patch in patches for file in patch["files"] if file.get("module")):
        package = file["module"].partition(".")[0]
        path = file["path"].removesuffix(".py").removesuffix("/__init__")
        wanted = path.removesuffix(file["module"].replace(".", "/")) + package
        start = getattr(modules.get(package), "__file__", None) or ""
        if start.endswith("/__init__.py") and os.path.realpath(os.path.dirname(start)) != os.path.realpath(wanted):
            return f"{package} is imported from {os.path.dirname(start)}, and the patches are in {wanted}"
    return ""


def is_first(env: Mapping[str, str]) -> bool:
    """Whether this is the first process of a job: no rank in the environment is another than 0."""
    return all(env.get(name, "").strip().lstrip("0") == "" or not env[name].strip().isdigit() for name in RANKS)
