"""The input files of uv, and the parsers of its output: chosen files, who requires what, and why it failed.

uv gets a project file with the requirements, and a settings file with everything else. It reads no other settings, so
that the user's settings cannot change a lock. The first index in the list that has a package serves all of its
versions. An `explicit` index serves only the packages that name it. URLs here have no credentials.
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


# The project name for the profile's requirements. No distribution has it.
PROJECT = "cannery-lock"
LINE = re.compile(r"(?P<name>[a-z0-9][a-z0-9-]*)(?:\[[^\]]*\])?==(?P<version>\S+)(?: .*?)?(?:\s+# via (?P<via>.+))?")
UNSATISFIABLE = "No solution found"
_OS_ERROR = re.compile(r"\(os error (?P<number>\d+)\)")
# Error numbers of connections: broken pipe, address, network, reset, time-out, refused, host.
_OF_NETWORK = frozenset({32, 98, 99, 100, 101, 103, 104, 107, 110, 111, 112, 113})
# After this error uv lists the fields that it knows, and some of them look like network errors.
_UNREAD = re.compile(r"Failed to parse:? `?(?P<file>uv\.toml|pyproject\.toml)")


@dataclass(frozen=True)
class UvIndex:
    """An index in uv's settings.

    `flat`: it is a list of files. `dated`: it has upload times, so the date bound applies. `kept`: its pages may be
    cached for a while.
    """

    name: str
    url: str
    flat: bool = False
    explicit: bool = False
    dated: bool = True
    kept: bool = False


def project_text(request: LockRequest, bound: Mapping[str, UvIndex], more: Sequence[str] = ()) -> str:
    """Return pyproject.toml: the requirements, the names in `more`, and the index of each bound package."""
    lines = [
        "[project]",
        f"name = {_text(PROJECT)}",
        'version = "0"',
        f"requires-python = {_text(f'>={request.python}')}",
        f"dependencies = {_list([*request.requirements, *more])}",
        # A workspace root: uv ignores project files in parent folders.
        "[tool.uv.workspace]",
        "members = []",
        "[tool.uv.sources]",
        *(f"{_text(name)} = {{ index = {_text(index.name)} }}" for name, index in sorted(bound.items())),
    ]
    for index in sorted(set(bound.values()), key=lambda index: index.name):
        lines += _index(index, "[[tool.uv.index]]", default=False)
    return "\n".join(lines) + "\n"


def settings_text(
    request: LockRequest, bound: Mapping[str, UvIndex], shared: Sequence[UvIndex], for_builds: Sequence[str] = ()
) -> str:
    """Return uv.toml. `shared` are the indexes of all packages that are not bound, the preferred one first.

    The last one is uv's default index, which uv queries last. Without it, uv would add PyPI. `for_builds` are
    constraints of what uv installs to build an sdist for its metadata.
    """
    dates = (f"{_text(name)} = {_end_of(day) if day else 'false'}" for name, day in request.package_dates)
    lines = [
        f"exclude-newer = {_end_of(request.exclude_newer)}",
        f"exclude-newer-package = {{ {', '.join(dates)} }}",
        'preview-features = ["index-exclude-newer"]',
        f"constraint-dependencies = {_list(request.constraints)}",
        f"override-dependencies = {_list(request.overrides)}",
        f"exclude-dependencies = {_list(request.excludes)}",
        f"build-constraint-dependencies = {_list(for_builds)}",
    ]
    for index in sorted(set(bound.values()), key=lambda index: index.name):
        lines += _index(index, "[[index]]", default=False)
    for number, index in enumerate(shared, start=1):
        lines += _index(index, "[[index]]", default=number == len(shared))
    return "\n".join(lines) + "\n"


def _end_of(day: str) -> str:
    """Return the end of a day in UTC. uv would read a plain date in the time zone of the host."""
    return _text(f"{day}T23:59:59Z")


def _index(index: UvIndex, table: str, *, default: bool) -> list[str]:
    return [
        table,
        f"name = {_text(index.name)}",
        f"url = {_text(index.url)}",
        *(['format = "flat"'] if index.flat else []),
        *(["explicit = true"] if index.explicit else []),
        *([] if index.dated else ["exclude-newer = false"]),
        # Pages are cached for ten minutes, as PyPI asks for, and files, which never change, for a day. Without this,
        # every lock may fetch every page and all metadata again.
        *(['cache-control = { api = "max-age=600", files = "max-age=86400" }'] if index.kept else []),
        *(["default = true"] if default else []),
    ]


def _text(value: str) -> str:
    """Return a TOML string. TOML has all escapes of JSON."""
    return json.dumps(value, ensure_ascii=False)


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_text(value) for value in values)}]"


def direct_names(request: LockRequest) -> frozenset[str]:
    """Return the normalised names in the requirements of the request."""
    return frozenset(package_name(text) for text in request.requirements)


def exact_pin(request: LockRequest, name: str) -> str | None:
    """Return the version of an `==` pin of `name` in the overrides, requirements or constraints; or None."""
    asked = map(parsed_requirement, (*request.overrides, *request.requirements, *request.constraints))
    return next((one.exact for one in asked if one.package == name and one.exact), None)


@dataclass(frozen=True)
class ResolvedFile:
    """A file that uv may install. `sha256` is "" and `size` 0 if the index does not have them."""

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
    """Read a pylock.toml (PEP 751) that uv wrote for one target.

    Raises `ValueError` for any other text, and for a package that is not from an index (a repository, a folder).
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
    """Read requirements text with one-line annotations into {name: (version, sorted names of who requires it)}."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for line in text.splitlines():
        match = LINE.fullmatch(line.strip())
        if match:
            # `-c (workspace)` and `--override (workspace)` are bounds and do not require the package.
            askers = {asker for asker in (match["via"] or "").split(", ") if asker and not asker.startswith("-")}
            names = {PROFILE_VIA if asker.startswith(PROJECT) else asker for asker in askers}
            found[match["name"]] = (match["version"], tuple(sorted(names)))
    return found


def explain(stderr: str, profile: str, *, lines: int = 20, width: int = 110) -> str:
    """Return uv's explanation with the profile's name, in at most `lines` lines.

    Hints about options of uv are left out, since the user does not call uv.
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
    """Return the number of an operating system error in uv's output, if it is not a connection error; else 0.

    On a full disk, uv reports a failed download and this error at the end.
    """
    numbers = (int(found["number"]) for found in _OS_ERROR.finditer(stderr))
    return next((number for number in numbers if number not in _OF_NETWORK), 0)


def is_of_network(stderr: str) -> bool:
    """Whether uv reports that an index failed. If an index refuses a page, uv treats the package as missing there."""
    if UNSATISFIABLE in stderr:
        return "ignore-error-codes" in stderr
    return not _UNREAD.search(stderr) and reason(stderr).is_network
