"""The texts that uv gets, and how its answers are read: the files it chose, who asked for what, why it failed.

uv gets a project file with the requirements, and a settings file with everything else. It reads no other settings file,
so that the user's own cannot change a lock. uv tries the indexes in the order of the list, and the first one that has a
package serves all of its versions. An `explicit` index serves only the packages that name it. No URL here holds
credentials.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from cannery.catalog.target import package_name, parsed_requirement
from cannery.lock.lock import PROFILE_VIA
from cannery.util.trouble import reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.lock.request import LockRequest


# The name that uv knows the profile's requirements by; no distribution has it.
PROJECT = "cannery-lock"
LINE = re.compile(r"(?P<name>[a-z0-9][a-z0-9-]*)(?:\[[^\]]*\])?==(?P<version>\S+)(?: .*?)?(?:\s+# via (?P<via>.+))?")
UNSATISFIABLE = "No solution found"
_OS_ERROR = re.compile(r"\(os error (?P<number>\d+)\)")
# Error numbers of connections: broken pipe, address, network, reset, time-out, refused, host.
_OF_NETWORK = frozenset({32, 98, 99, 100, 101, 103, 104, 107, 110, 111, 112, 113})
# uv then lists the fields that it knows, and some of them have words of the network.
_UNREAD = re.compile(r"Failed to parse:? `?(?P<file>uv\.toml|pyproject\.toml)")


@dataclass(frozen=True)
class UvIndex:
    """An index in uv's settings.

    `flat` is a list of files; `dated`: it has upload times, so the date bound applies; `kept`: its answers are kept
    for a while.
    """

    name: str
    url: str
    flat: bool = False
    explicit: bool = False
    dated: bool = True
    kept: bool = False


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
    dates = (f"{_text(name)} = {_end_of(day) if day else 'false'}" for name, day in request.package_dates)
    lines = [
        f"exclude-newer = {_end_of(request.exclude_newer)}",
        f"exclude-newer-package = {{ {', '.join(dates)} }}",
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
    """Return the end of a day in UTC: a bare date would be a day in the time zone of the host."""
    return _text(f"{day}T23:59:59Z")


def _index(index: UvIndex, table: str, *, default: bool) -> list[str]:
    return [
        table,
        f"name = {_text(index.name)}",
        f"url = {_text(index.url)}",
        *(['format = "flat"'] if index.flat else []),
        *(["explicit = true"] if index.explicit else []),
        *([] if index.dated else ["exclude-newer = false"]),
        # Pages ten minutes, as the public index asks for; files, whose content never changes, a day. Without it every
        # lock may fetch every page and all metadata again.
        *(['cache-control = { api = "max-age=600", files = "max-age=86400" }'] if index.kept else []),
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
    asked = map(parsed_requirement, (*request.overrides, *request.requirements, *request.constraints))
    return next((one.exact for one in asked if one.package == name and one.exact), None)


@dataclass(frozen=True)
class ResolvedFile:
    """A file that uv may install. `sha256` is "" and `size` 0 where the index has none."""

    file: str
    url: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Resolved:
    """A package that uv chose, with its files for the target."""

    name: str
    version: str
    wheels: tuple[ResolvedFile, ...]
    sdist: ResolvedFile | None


def parse_pylock(text: str) -> tuple[Resolved, ...]:
    """Read a pylock.toml (PEP 751) as uv writes it for one target.

    Raises `ValueError` for any other text, and for a package that comes from no index (a repository, a folder).
    """
    found = []
    for package in tomllib.loads(text).get("packages", []):
        sdist, wheels = package.get("sdist"), package.get("wheels", ())
        if "version" not in package or not (wheels or sdist):
            raise ValueError(f"{package.get('name')} does not come from an index")
        files = tuple(map(_file, wheels))
        found.append(Resolved(package["name"], package["version"], files, _file(sdist) if sdist else None))
    return tuple(sorted(found, key=lambda package: package.name))


def _file(entry: Mapping[str, Any]) -> ResolvedFile:
    url = str(entry.get("url") or entry.get("path") or "")
    name = str(entry.get("name") or unquote(urlsplit(url).path.rpartition("/")[2]))
    return ResolvedFile(name, url, str(entry.get("hashes", {}).get("sha256", "")), int(entry.get("size", 0)))


def parse_via(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Read requirements text with one-line annotations: name → (version, sorted names of who asked)."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for line in text.splitlines():
        match = LINE.fullmatch(line.strip())
        if match:
            # `-c (workspace)` and `--override (workspace)` are bounds: they do not ask for the package.
            askers = {asker for asker in (match["via"] or "").split(", ") if asker and not asker.startswith("-")}
            names = {PROFILE_VIA if asker.startswith(PROJECT) else asker for asker in askers}
            found[match["name"]] = (match["version"], tuple(sorted(names)))
    return found


def explain(stderr: str, profile: str, *, lines: int = 20, width: int = 110) -> str:
    """Return uv's explanation in the profile's words, at most `lines` lines.

    uv's advice about its own options is left out, since the user does not call uv.
    """
    kept: list[str] = []
    for raw in stderr.splitlines():
        line = re.sub(r"^\s*(error:|cause:|×|╰─▶|│)\s*", "", raw).strip()
        if not line or line.startswith(("Resolved ", "warning:", "Using ", UNSATISFIABLE)):
            continue
        if line.startswith("hint:") and ("`--" in line or "not at the requested version" in line):
            continue
        line = re.sub(r"\s*(Consider (?:using|removing)|A compatible version may be available) .*$", "", line).replace(
            PROJECT, profile
        )
        line = re.sub(r",? we can conclude that your requirements are unsatisfiable\.?", ": that cannot be met.", line)
        kept += textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False)
    return "\n".join(kept[:lines] if len(kept) <= lines else [*kept[: lines - 1], "…"])


def os_error(stderr: str) -> int:
    """Return the number of the operating system's error in what `uv` wrote, if it is not of a connection; else 0.

    On a full disk uv reports a failed download, with this error at the end.
    """
    numbers = (int(found["number"]) for found in _OS_ERROR.finditer(stderr))
    return next((number for number in numbers if number not in _OF_NETWORK), 0)


def is_of_network(stderr: str) -> bool:
    """Whether `uv` reports that an index failed. For uv, an index that refuses a page does not have the package."""
    if UNSATISFIABLE in stderr:
        return "ignore-error-codes" in stderr
    return not _UNREAD.search(stderr) and reason(stderr).is_network
