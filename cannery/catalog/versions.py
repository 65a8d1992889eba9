"""Versions as CANN and the driver (HDK) write them, and their order; requirements of distributions.

Both count alike: `A.B.rcN` are candidates of feature release `A.B`, and `A.B.N` are its releases, which come later:
CANN 8.0.rc1, 8.0.rc2, 8.0.rc3 and 8.0.0 came out in that order. Either may be followed by further numbers (a patch:
25.0.rc1.1), then a preview (`alphaN`, `betaN`: before it), then a build (`B160`: of it, so not before it).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.vocab import Arch


WRITTEN = re.compile(
    r"(?P<line>(\d{1,9})\.(\d{1,9})\.(rc)?(\d{1,9})((?:\.\d{1,9})*)(?:\.(alpha|beta)(\d{1,9}))?)(?:\.b(\d{1,9}))?",
    re.ASCII,
)
# The order of a preview and a version without one, of the same number.
STAGES = {"alpha": 0, "beta": 1, None: 2}
NO_BUILD = -1

Key = tuple[tuple[int, ...], ...]


# A search of the compatibility table asks for the same few hundred versions a million times.
parsed_version = cache(Version)
# Every profile asks for nearly the same. Who has one changes nothing of it.
parsed_requirement = cache(Requirement)


def canonical(text: str) -> str:
    """Return `text` in lower case without blanks around it; raise `ValueError` when it is no version of this kind."""
    value = text.strip().lower()
    if not WRITTEN.fullmatch(value):
        raise ValueError(f"{text!r} is no version of CANN or of a driver")
    return value


def without_build(text: str) -> str:
    """Return the version that a build is of (`8.5.0.B160` → `8.5.0`): tables, tags and paths have that one.

    A preview stays what it is: it came before the release and may differ from it. Any other text is returned as it is.
    """
    match = WRITTEN.fullmatch(text.strip().lower())
    return match["line"] if match else text


def series_of(version: str) -> str:
    """Return the first two numbers of a version (`25.0.rc1.1` → `25.0`)."""
    return ".".join(version.split(".")[:2])


def order(text: str) -> Key:
    """Return a key that sorts versions: 8.3.rc1 < 8.3.rc2 < 8.3.0 < 8.5.0.alpha1 < 8.5.0 < 8.5.0.b160 < 8.5.1.

    Whatever is no such version comes before all that are, so that it never passes for a newer one.
    """
    match = WRITTEN.fullmatch(text.strip().lower())
    if not match:
        return ()
    _line, major, minor, candidate, number, patch, stage, preview, build = match.groups()
    numbers = tuple(int(part) for part in patch.split(".") if part)
    return (
        (int(major), int(minor), 0 if candidate else 1, int(number)),
        numbers,
        (STAGES[stage], int(preview or 0), int(build or NO_BUILD)),
    )


def distance(one: str, other: str) -> tuple[int, ...]:
    """How far `other` is from `one`: major, minor, micro and post; the least sorts first.

    What follows the first number that differs counts from the side of `one`: 1.26.4 is nearer to 1.99 than 1.26.0
    is.
    """
    a, b = parsed_version(one), parsed_version(other)
    pairs = ((a.major, b.major), (a.minor, b.minor), (a.micro, b.micro), (a.post or 0, b.post or 0))
    side = 0
    found = []
    for x, y in pairs:
        found.append(side * y if side else abs(x - y))
        side = side or (y > x) - (y < x)
    return tuple(found)


def package_name(requirement: str) -> str:
    """Return the normalised name of the distribution that a requirement is about."""
    return canonicalize_name(parsed_requirement(requirement).name)


def marker_environment(python: str, arch: Arch) -> dict[str, str]:
    """Return every variable of a marker for Python `X.Y` on Linux, so that nothing of the running Python counts."""
    full = f"{python}.0"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": arch.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": python,
        "sys_platform": "linux",
    }


def live(texts: Iterable[str], environment: Mapping[str, str]) -> Iterator[Requirement]:
    """Give the requirements, PEP 508 texts, that count there: without a marker, or with one that holds."""
    for text in texts:
        found = parsed_requirement(text)
        if found.marker is None or found.marker.evaluate(dict(environment)):
            yield found
