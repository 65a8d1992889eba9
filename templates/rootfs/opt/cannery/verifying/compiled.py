"""Compiled files in __pycache__: whose they are, and whether Python would run what was made from another source."""

import glob
import importlib.util
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

COMPILED = re.compile(r"(.*/)__pycache__/([^/]+)\.(cpython-3\d+)(\.opt-[12])?\.pyc", re.DOTALL)
OURS = f".{sys.implementation.cache_tag}."  # the hash is keyed by the interpreter: only its own files can be judged


def source_of(path: str) -> str:
    """The source beside a __pycache__ folder that a file in there is named after; "" for other paths."""
    found = COMPILED.fullmatch(path) if path.endswith(".pyc") else None
    return f"{found[1]}{found[2]}.py" if found else ""


def by_source(paths: Iterable[str]) -> dict[str, list[str]]:
    """The compiled files of this interpreter, by source."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if path.endswith(".pyc") and OURS in path:
            found[source_of(path)].append(path)
    found.pop("", None)
    return dict(found)


def stale(source: bytes, compiled: Sequence[str]) -> bool:
    """Whether one of the compiled files states the hash of another source (PEP 552).

    Those of wheels are never compared with their source, so Python runs such a file in the place of the source. One
    with a time in it, or with a hash that is to be checked (source trees have these), is compared by Python itself, and
    one that cannot be read is not used.
    """
    wanted = importlib.util.source_hash(source) if compiled else b""
    for path in compiled:
        try:
            with open(path, "rb", buffering=0) as file:
                head = file.read(16)
        except OSError:
            continue
        # Byte 4: flags, of which bit 0 says "by hash" and bit 1 "compared at each start".
        if len(head) == 16 and head[4] & 3 == 1 and head[8:] != wanted:
            return True
    return False


def stale_pyc(path: str) -> bool:
    """The same for the compiled files of one source."""
    if not path.endswith(".py"):
        return False
    folder, name = os.path.split(path)
    with open(path, "rb") as file:
        return stale(file.read(), glob.glob(f"{glob.escape(folder)}/__pycache__/{glob.escape(name[:-3])}{OURS}*pyc"))
