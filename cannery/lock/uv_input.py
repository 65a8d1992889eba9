"""What uv is given: a project file with the requirements, and a settings file with everything else. Pure text.

`uv.toml` is the only settings file that uv then reads, so that the user's own cannot change a lock. Indexes are tried
in the order of the list, and the first one that has a package serves all of its versions; one that is `explicit`
serves only the packages that name it. No URL here holds credentials.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.catalog.versions import package_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.lock.lock import LockRequest

# The name that uv knows the profile's requirements by; no distribution has it.
PROJECT = "cannery-lock"


@dataclass(frozen=True)
class UvIndex:
    """An index in uv's settings.

    `flat` is a list of files; `dated`: it has upload times, so the date bound applies.
    """

    name: str
    url: str
    flat: bool = False
    explicit: bool = False
    dated: bool = True


def project_text(request: LockRequest, bound: Mapping[str, UvIndex], more: Sequence[str] = ()) -> str:
    """Return pyproject.toml: the requirements, `more` names beside them, and the index of each bound package."""
    lines = [
        "[project]",
        f"name = {_text(PROJECT)}",
        'version = "0"',
        f"requires-python = {_text(f'>={request.python}')}",
        f"dependencies = {_list([*request.requirements, *more])}",
        # A root of its own: no project file in a folder above counts.
        "[tool.uv.workspace]",
        "members = []",
        "[tool.uv.sources]",
        *(f"{_text(name)} = {{ index = {_text(index.name)} }}" for name, index in sorted(bound.items())),
    ]
    for index in sorted(set(bound.values()), key=lambda index: index.name):
        lines += _index(index, "[[tool.uv.index]]", default=False)
    return "\n".join(lines) + "\n"


def settings_text(request: LockRequest, bound: Mapping[str, UvIndex], shared: Sequence[UvIndex]) -> str:
    """Return uv.toml. `shared` are the indexes of all that is not bound, the preferred one first.

    The last one is given as uv's default index, which uv asks last: else uv would add its own.
    """
    lines = [
        # The end of that day in UTC: a bare date would be a day in the time zone of the host.
        f"exclude-newer = {_text(_end_of(request.exclude_newer))}",
        f"exclude-newer-package = {_dates(request)}",
        'preview-features = ["index-exclude-newer"]',
        f"constraint-dependencies = {_list(request.constraints)}",
        f"override-dependencies = {_list(request.overrides)}",
        f"exclude-dependencies = {_list(request.excludes)}",
    ]
    for index in sorted(set(bound.values()), key=lambda index: index.name):
        lines += _index(index, "[[index]]", default=False)
    for number, index in enumerate(shared, start=1):
        lines += _index(index, "[[index]]", default=number == len(shared))
    return "\n".join(lines) + "\n"


def _end_of(day: str) -> str:
    return f"{day}T23:59:59Z"


def _dates(request: LockRequest) -> str:
    return f"{{ {', '.join(f'{_text(name)} = {_text(_end_of(day))}' for name, day in request.package_dates)} }}"


def _index(index: UvIndex, table: str, *, default: bool) -> list[str]:
    return [
        table,
        f"name = {_text(index.name)}",
        f"url = {_text(index.url)}",
        *(['format = "flat"'] if index.flat else []),
        *(["explicit = true"] if index.explicit else []),
        *([] if index.dated else ["exclude-newer = false"]),
        *(["default = true"] if default else []),
    ]


def _text(value: str) -> str:
    """A TOML basic string; JSON's escapes are a part of TOML's."""
    return json.dumps(value, ensure_ascii=False)


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_text(value) for value in values)}]"


def direct_names(request: LockRequest) -> frozenset[str]:
    """Return the normalised names that the request itself asks for."""
    return frozenset(package_name(text) for text in request.requirements)


def exact_pin(request: LockRequest, name: str) -> str | None:
    """Return the version that the request pins `name` to with `==`, by an override or else a requirement; or None."""
    for text in (*request.overrides, *request.requirements, *request.constraints):
        wanted = Requirement(text)
        if canonicalize_name(wanted.name) != name:
            continue
        for part in wanted.specifier:
            if part.operator in ("==", "===") and not part.version.endswith(".*"):
                return part.version
    return None
