r"""Locks: what the resolver is asked, the exact files that it chose, and the text of them that pip and uv can read.

First line: a JSON comment with what the lock was made from and how many packages follow. Then, sorted by name, one
entry for each package:

    absl-py==2.5.1 \
        --hash=sha256:…
        # absl_py-2.5.1-py3-none-any.whl, 135750 bytes, index default, via tensorboard

Index names and no URLs, so that any mirror serves it. A package whose index was not reached has no hash, and its
comment names the index. The size of one whose hash is from images/hashes.yaml may be unknown. Lines that start with `#`
in the first column and empty lines are skipped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename
from packaging.version import InvalidVersion

from cannery.catalog.versions import parsed_version
from cannery.errors import UsageError
from cannery.lock.files import parsed_wheel
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


LOCK_SCHEMA = 1
# What `via` has for a package that the profile itself asks for; no distribution can have this name.
PROFILE_VIA = "<profile>"
REMAKE = "make it anew with `build.py lock`; a lock is not edited by hand"
# The types of the header's fields.
HEADER = {
    "schema": int,
    "profile": str,
    "python": str,
    "arch": str,
    "inputs": str,
    "exclude_newer": str,
    "complete": bool,
    "packages": int,
    "resolver": str,
}
_PIN = r"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)==(?P<version>[0-9a-z.!+_-]{1,100})"
_FILE = r"(?P<file>[^\s,/]{1,250}), (?:(?P<size>[1-9]\d{0,14}) bytes|size unknown), index (?P<index>[A-Za-z0-9._-]+)"
# An entry: its pin, and a hash with the comment of its file, or the comment of a package without one.
ENTRY = re.compile(
    rf"{_PIN}(?: \\\n    --hash=sha256:(?P<sha256>[0-9a-f]{{64}})\n    # {_FILE}"
    r"|\n    # incomplete: index (?P<lost>[A-Za-z0-9._-]+) not reached)"
    r"(?:, via (?P<via>[^\s,]+(?:, [^\s,]+)*))?",
    re.ASCII,
)


@dataclass(frozen=True)
class KnownRelease:
    """What a release asks for, known without its index: (normalised name, version, PEP 508 texts, range of Pythons).

    `file` of a source: what the lock has of it. "" is a commit, which is no package of the lock.
    """

    name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str = ""
    file: Literal["", "sdist", "wheel"] = ""


@dataclass(frozen=True)
class LockRequest:
    """What is asked of the resolver for one (profile, Python, arch). Everything that may change the answer is in it.

    `requirements`, `constraints` and `overrides` are PEP 508 texts; `excludes` are names that must not come in;
    `bindings` are (distribution, index name) pairs: those come from that index only, and nothing else comes from it;
    `exclude_newer` is an ISO date: later uploads do not exist for the resolver; `package_dates` are (distribution, ISO
    date) pairs that take its place. `stand_ins` are used where a bound package's index is not reached. `sources` are
    built: what they are known to ask for counts, and those that come from git are no packages of the lock. `variant`
    is part of the lock's file name: another set for the same target, as a stand-in with substitutes has it.
    """

    profile: str
    python: str
    arch: Arch
    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    overrides: tuple[str, ...]
    excludes: tuple[str, ...]
    exclude_newer: str
    bindings: tuple[tuple[str, str], ...]
    stand_ins: tuple[KnownRelease, ...]
    sources: tuple[KnownRelease, ...] = ()
    package_dates: tuple[tuple[str, str], ...] = ()
    variant: str = ""

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the request: a lock made from another one is stale."""
        asked = {key: value for key, value in asdict(self).items() if key != "variant"}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class LockedPackage:
    """One package of a lock and the one file that provides it.

    `file` is the wheel's or sdist's file name, `sha256` its hash and `size` its bytes; all three are empty (`""`, `""`,
    0) in an incomplete lock, where the package's index could not be reached. With a hash from images/hashes.yaml
    `size` alone may be 0, for unknown. `index` is the name of the index that served it, `via` who
    asked for it (sorted names; `PROFILE_VIA` for a profile's own requirement).
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int
    index: str
    via: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether the file is known by hash."""
        return bool(self.sha256)

    @property
    def is_sdist(self) -> bool:
        """Whether the package exists as a source distribution only, so that a stage has to make its wheel."""
        return bool(self.file) and not self.file.endswith(".whl")


@dataclass(frozen=True)
class Lock:
    """The exact set for one (profile, Python, arch); `packages` are sorted by normalised name."""

    profile: str
    python: str
    arch: Arch
    inputs: str
    exclude_newer: str
    resolver: str
    packages: tuple[LockedPackage, ...]

    @property
    def complete(self) -> bool:
        """Whether every file is known by hash."""
        return all(package.complete for package in self.packages)


def shortest(askers: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """Return the shortest chain of names from a requirement of the profile to `name`, both included.

    `askers` is name → who asks for it, `PROFILE_VIA` for the profile. Who asks and is no key of it is a source, which
    the profile names. Where no chain leads to the profile it is `name` alone.
    """
    paths: deque[tuple[str, ...]] = deque([(name,)])
    seen = {name}
    while paths:
        path = paths.popleft()
        if PROFILE_VIA in askers.get(path[0], (PROFILE_VIA,)):
            return path
        for asker in askers[path[0]]:
            if asker and asker not in seen:
                seen.add(asker)
                paths.append((asker, *path))
    return (name,)


def chain(packages: Iterable[LockedPackage], name: str) -> tuple[str, ...]:
    """Return the shortest chain from the profile to a package of a lock."""
    # `via` may carry an extra of the asker: `ray[default]`
    return shortest({p.name: [asker.split("[")[0] for asker in p.via] for p in packages}, name)


def file_problem(package: LockedPackage) -> str:
    """Return why the file's name does not fit the package, "" when it does.

    A file of another name or version would be installed in its place.
    """
    file = package.file
    try:
        name, version = parsed_wheel(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return f"{package.name}: {file!r} is neither a wheel's nor an sdist's name"
    if name != package.name or version != parsed_version(package.version):
        return f"{package.name}=={package.version} does not fit the file {file}"
    return ""


def format_lock(lock: Lock) -> str:
    """Return the text of `lock`; `parse_lock` gives the same lock back."""
    values = {"schema": LOCK_SCHEMA, "packages": len(lock.packages)}
    header = {name: values[name] if name in values else getattr(lock, name) for name in HEADER}
    lines = [f"# {json.dumps(header)}"]
    for package in lock.packages:
        via = f", via {', '.join(package.via)}" if package.via else ""
        pin = f"{package.name}=={package.version}"
        if package.complete:
            size = f"{package.size} bytes" if package.size else "size unknown"
            comment = f"    # {package.file}, {size}, index {package.index}{via}"
            lines += [f"{pin} \\", f"    --hash=sha256:{package.sha256}", comment]
        else:
            lines += [pin, f"    # incomplete: index {package.index} not reached{via}"]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=100)
def parse_lock(text: str, where: str) -> Lock:
    """Read the text of a lock. `where` is its file's name, for messages.

    Raises `UsageError` naming file and line when the text is not what `format_lock` writes.
    """
    first, *lines = text.replace("\r\n", "\n").split("\n")
    header = _header(first, where)
    if not text.endswith("\n"):
        raise _broken(where, len(lines) + 1, "the last line has no end: the file was cut off")
    packages = tuple(_packages(lines, where))
    if header["packages"] != len(packages):
        what = f"its header counts {header['packages']} packages, and it has {len(packages)}: merged or edited by hand"
        raise UsageError(what, where=where, hint="make lock")
    names = [package.name for package in packages]
    if names != sorted(set(names)):
        raise UsageError("its packages are not sorted, or one is named twice", where=where, hint=REMAKE)
    mine = {field.name: header[field.name] for field in fields(Lock) if field.name in header}
    lock = Lock(**{**mine, "arch": Arch(header["arch"]), "packages": packages})
    if header["complete"] is not lock.complete:
        raise _broken(where, 1, "`complete` does not agree with the packages below")
    return lock


def _broken(where: str, line: int, what: str) -> UsageError:
    return UsageError(what, where=f"{where}:{line}", hint=REMAKE)


def _header(first: str, where: str) -> dict[str, Any]:
    try:
        header = json.loads(first.removeprefix("# ")) if first.startswith("# ") else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _broken(where, 1, "a lock starts with a JSON comment")
    if header.get("schema") != LOCK_SCHEMA:
        raise _broken(where, 1, f"schema {header.get('schema')!r} of a lock is not known, only {LOCK_SCHEMA}")
    wrong = sorted({*HEADER} ^ {*header}) or sorted(k for k, kind in HEADER.items() if type(header[k]) is not kind)
    if wrong:
        what = "fields of the JSON comment are missing, not known or of a wrong type"
        raise _broken(where, 1, f"{what}: {', '.join(wrong)}")
    if header["arch"] not in [*Arch]:
        raise _broken(where, 1, f"arch {header['arch']!r} is not known")
    return header


def _packages(lines: list[str], where: str) -> Iterator[LockedPackage]:
    """Give the packages of the lines after the header; an error has the line in which an entry starts."""
    entries: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" ") and entries:
            start, above = entries.pop()
            entries.append((start, f"{above}\n{line}"))
        else:
            entries.append((number, line))
    for number, text in entries:
        found = ENTRY.fullmatch(text)
        if not found:
            raise _broken(where, number, f"not an entry of a lock: {text[:200]!r}")
        name, version, file, sha256 = found["name"], found["version"], found["file"] or "", found["sha256"] or ""
        try:
            parsed_version(version)
        except InvalidVersion as error:
            raise _broken(where, number, f"{name}: {version!r} is not a version") from error
        via = tuple(found["via"].split(", ")) if found["via"] else ()
        index = found["index"] or found["lost"]
        package = LockedPackage(name, version, file, sha256, int(found["size"] or 0), index, via)
        if file and (problem := file_problem(package)):
            raise _broken(where, number, problem)
        yield package
