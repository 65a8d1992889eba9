"""Requirements as texts (PEP 508): whose they are, and which of them count on a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.vocab import Arch


def package_name(requirement: str) -> str:
    """Return the normalised name of the distribution that a requirement is about."""
    return canonicalize_name(Requirement(requirement).name)


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
        found = Requirement(text)
        if found.marker is None or found.marker.evaluate(dict(environment)):
            yield found
