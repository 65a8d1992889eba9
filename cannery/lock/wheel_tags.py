"""Which files fit a target, and which of them an installer takes: wheel tags of (Python, arch), best first."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What torch's and torch_npu's wheels ask: the glibc of the oldest system that images are built on (manylinux_2_28).
GLIBC = (2, 28)
# What all other systems have: openEuler 22.03 has 2.34, Ubuntu 22.04 2.35, Debian 12 2.36. Where no wheel is for the
# older one, a wheel for this one is better than a source distribution that a stage has to compile.
NEWER = (2, 34)
# Older spellings of a manylinux level (PEP 600), and the first glibc that had the arch.
LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
FIRST = {Arch.AMD64: (2, 5), Arch.ARM64: (2, 17)}


def uv_platform(arch: Arch) -> str:
    """Return the target platform in uv's words."""
    return f"{arch.machine}-manylinux_{NEWER[0]}_{NEWER[1]}"


def _platforms(arch: Arch) -> tuple[str, ...]:
    names: list[str] = []
    for minor in range(GLIBC[1], FIRST[arch][1] - 1, -1):
        names.append(f"manylinux_2_{minor}_{arch.machine}")
        if (2, minor) in LEGACY:
            names.append(f"{LEGACY[2, minor]}_{arch.machine}")
    return (*names, f"linux_{arch.machine}")


def _newer(arch: Arch) -> tuple[str, ...]:
    return tuple(f"manylinux_2_{minor}_{arch.machine}" for minor in range(GLIBC[1] + 1, NEWER[1] + 1))


@cache
def target_tags(python: str, arch: Arch) -> Mapping[Tag, int]:
    """Return every wheel tag that CPython `python` takes on `arch`, with its rank: 0 is the best."""
    version = tuple(int(part) for part in python.split("."))
    abi = "cp" + "".join(python.split("."))
    tags = [
        tag
        for platforms in (_platforms(arch), _newer(arch))
        for tag in (*cpython_tags(version, [abi], platforms), *compatible_tags(version, abi, platforms))
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


# Name, version, build and tags of a wheel by its file name. Reading, checking and choosing ask for the same ones.
parsed_wheel = cache(parse_wheel_filename)


def wheel_rank(file: str, python: str, arch: Arch) -> tuple[int, int, str] | None:
    """Return a key by which wheels of one version sort, the best first; None when `file` does not fit the target."""
    try:
        _name, _version, build, tags = parsed_wheel(file)
    except InvalidWheelFilename:
        return None
    known = target_tags(python, arch)
    ranks = [known[tag] for tag in tags if tag in known]
    if not ranks:
        return None
    return min(ranks), -(build[0] if build else 0), file


def installable(file: str, python: str, arch: Arch) -> bool:
    """Whether a file can be installed on the target: a wheel that fits it, or a source distribution."""
    return not file.endswith(".whl") or wheel_rank(file, python, arch) is not None


def best_wheel(files: Iterable[str], python: str, arch: Arch) -> str | None:
    """Return the one of `files` that an installer takes on the target, None when none fits."""
    ranked = [(rank, file) for file in files if (rank := wheel_rank(file, python, arch))]
    return min(ranked)[1] if ranked else None
