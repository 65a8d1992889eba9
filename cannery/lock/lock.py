r"""Locks: the exact files that a resolver chose, as requirements text for pip and uv. Also: which files fit a target.

The first line is a JSON comment with the inputs of the lock and the number of packages. One entry for each package
follows, sorted by name:

    absl-py==2.5.1 \
        --hash=sha256:…
        # absl_py-2.5.1-py3-none-any.whl, 135750 bytes, index default, via tensorboard

A lock names indexes and has no URLs, so that any mirror can serve it. A package whose index was not reached has no
hash, and its comment names the index. A hash from images/hashes.yaml may have no size. Empty lines, and lines with `#`
in the first column, are skipped.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from cannery.catalog.target import is_version, parsed_version
from cannery.errors import UsageError
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.utils import BuildTag, NormalizedName
    from packaging.version import Version

    from cannery.catalog.addresses import Index, Published


LOCK_SCHEMA = 1
# The entry in `via` of a package that the profile requires. No distribution can have this name.
PROFILE_VIA = "<profile>"
REMAKE = "make it again with `build.py lock`; do not edit a lock by hand"
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
_NAME = r"[^\s\0,/]{1,250}"
_FILE = rf"(?P<file>{_NAME}), (?:(?P<size>[1-9]\d{{0,14}}) bytes|size unknown), index (?P<index>[A-Za-z0-9._-]+)"
# An entry: its pin, and a hash with the comment of its file, or the comment of a package without one.
ENTRY = re.compile(
    rf"{_PIN}(?: \\\n    --hash=sha256:(?P<sha256>[0-9a-f]{{64}})\n    # {_FILE}"
    r"|\n    # incomplete: index (?P<lost>[A-Za-z0-9._-]+) not reached)"
    r"(?:, via (?P<via>[^\s,]+(?:, [^\s,]+)*))?",
    re.ASCII,
)


class File(Protocol):
    """A file that an index lists, or a lock has."""

    @property
    def file(self) -> str:
        """Its name."""


F = TypeVar("F", bound=File)
# The glibc of the wheels of torch and torch_npu, and of the oldest system of an image (manylinux_2_28).
GLIBC = (2, 28)
# The glibc that all other systems have: openEuler 22.03 has 2.34, Ubuntu 22.04 2.35, Debian 12 2.36. A wheel for it is
# used if there is none for the older glibc, because otherwise a build stage would have to compile the sdist.
NEWER = (2, 34)
# Older spellings of a manylinux level (PEP 600), and the first glibc that had the arch.
LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
FIRST = {Arch.AMD64: (2, 5), Arch.ARM64: (2, 17)}


@cache  # The same names are parsed many times.
def parsed_wheel(file: str) -> tuple[NormalizedName, Version, BuildTag, frozenset[Tag]]:
    """Return the name, version, build and tags of a wheel. Raises `InvalidWheelFilename` for no name of a file.

    The library takes any text after the number of a build, a slash too.
    """
    if not re.fullmatch(_NAME, file):
        raise InvalidWheelFilename(f"no name of a file: {file!r}")
    return parse_wheel_filename(file)


@dataclass(frozen=True)
class LockedPackage:
    """One package of a lock and its file.

    `file` is the file name of the wheel or sdist, with its `sha256` and its `size` in bytes. All three are empty (`""`,
    `""`, 0) if the index was not reached; the package is then incomplete. With a hash from images/hashes.yaml, `size`
    may be 0 for unknown. `index` is the name of the index, `via` the sorted names of who requires the package
    (`PROFILE_VIA` for the profile).
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
        """Whether the file is a source distribution, so that a build stage has to make its wheel."""
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

    def __hash__(self) -> int:
        """By the header: to hash hundreds of packages takes longer than what is kept by a lock."""
        return hash((self.profile, self.python, self.arch, self.inputs))

    @property
    def complete(self) -> bool:
        """Whether every file is known by hash."""
        return all(package.complete for package in self.packages)


def shortest(askers: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """Return the shortest chain of names from a requirement of the profile to `name`, both included.

    `askers` is {name: who requires it}, with `PROFILE_VIA` for the profile. A name that is not a key is a source of the
    profile. Without a chain to the profile, the result is only `name`.
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
    # `via` may have an extra: `ray[default]`
    return shortest({p.name: [asker.split("[")[0] for asker in p.via] for p in packages}, name)


def file_problem(package: LockedPackage) -> str:
    """Return why the file name does not fit the package's name and version, or ""."""
    file = package.file
    try:
        name, version = parsed_wheel(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return f"{package.name}: {file!r} is neither a wheel's nor an sdist's name"
    if name != package.name or version != parsed_version(package.version):
        return f"{package.name}=={package.version} does not fit the file {file}"
    return ""


def format_lock(lock: Lock) -> str:
    """Return the text of `lock`. `parse_lock` reads it."""
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
    """Read the text of a lock. `where` is the name of its file in messages.

    Raises `UsageError` with file and line if the text is not in the form of `format_lock`.
    """
    first, *lines = text.replace("\r\n", "\n").split("\n")
    header = _header(first, where)
    if not text.endswith("\n"):
        raise _broken(where, len(lines) + 1, "the last line has no end: the file was cut off")
    packages = tuple(_packages(lines, where))
    if header["packages"] != len(packages):
        what = f"its header counts {header['packages']} packages, and it has {len(packages)}: merged or edited by hand"
        raise UsageError(what, where=where, hint="build.py lock")
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
    """Yield the packages from the lines after the header. Errors have the first line of the entry."""
    entries: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" ") and entries:
            entries[-1][1].append(line)
        else:
            entries.append((number, [line]))
    for number, parts in entries:
        text = "\n".join(parts)
        found = ENTRY.fullmatch(text)
        if not found:
            raise _broken(where, number, f"not an entry of a lock: {text[:200]!r}")
        name, version, file, sha256 = found["name"], found["version"], found["file"] or "", found["sha256"] or ""
        if not is_version(version):
            raise _broken(where, number, f"{name}: {version!r} is not a version")
        via = tuple(found["via"].split(", ")) if found["via"] else ()
        index = found["index"] or found["lost"]
        package = LockedPackage(name, version, file, sha256, int(found["size"] or 0), index, via)
        if file and (problem := file_problem(package)):
            raise _broken(where, number, problem)
        yield package


def uv_platform(arch: Arch) -> str:
    """Return uv's name of the target platform."""
    return f"{arch.machine}-manylinux_{NEWER[0]}_{NEWER[1]}"


@cache
def target_tags(python: str, arch: Arch) -> Mapping[Tag, int]:
    """Return every wheel tag that CPython `python` supports on `arch`, with its rank: 0 is the best."""
    version = tuple(int(part) for part in python.split("."))
    abi = "cp" + "".join(python.split("."))
    older: list[str] = []
    for minor in range(GLIBC[1], FIRST[arch][1] - 1, -1):
        older.append(f"manylinux_2_{minor}_{arch.machine}")
        older += [f"{LEGACY[2, minor]}_{arch.machine}"] if (2, minor) in LEGACY else []
    older.append(f"linux_{arch.machine}")
    newer = [f"manylinux_2_{minor}_{arch.machine}" for minor in range(GLIBC[1] + 1, NEWER[1] + 1)]
    tags = [
        tag
        for platforms in (older, newer)
        for tag in (*cpython_tags(version, [abi], platforms), *compatible_tags(version, abi, platforms))
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def wheel_rank(file: str, python: str, arch: Arch) -> tuple[int, int, str] | None:
    """Return a key that sorts wheels of one version, the best first; None if `file` does not fit the target."""
    try:
        _name, _version, build, tags = parsed_wheel(file)
    except InvalidWheelFilename:
        return None
    known = target_tags(python, arch)
    ranks = [rank for tag in tags if (rank := known.get(tag)) is not None]
    if not ranks:
        return None
    return min(ranks), -(build[0] if build else 0), file


def best_wheel(files: Iterable[F], python: str, arch: Arch) -> F | None:
    """Return the file that an installer would use on the target, or None."""
    ranked = [(rank, one) for one in files if (rank := wheel_rank(one.file, python, arch))]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def with_published(lock: Lock, published: Mapping[str, Published]) -> Lock:
    """Return `lock` with the best published file for the target for each incomplete package.

    `published` is by index name. A size that is not published is 0.
    """
    found = []
    for package in lock.packages:
        wanted = package.name, parsed_version(package.version)
        files = published[package.index].files if not package.complete and package.index in published else ()
        fitting = [one for one in files if parsed_wheel(one.file)[:2] == wanted]
        best = best_wheel(fitting, lock.python, lock.arch)
        found.append(replace(package, file=best.file, sha256=best.sha256, size=best.size) if best else package)
    return replace(lock, packages=tuple(found))


def with_known_files(new: Lock, old: Lock | None) -> Lock:
    """Return `new` with the files from `old` for packages whose index was not reached.

    They are used only for the same version, index, Python and arch, and only if `old` has no later date bound: the
    index would have listed the same file. They replace a published hash (with `size` 0), since `old` has them from the
    index. `via` is kept from `new`.
    """
    if old is None or (old.python, old.arch) != (new.python, new.arch) or old.exclude_newer > new.exclude_newer:
        return new
    known = {(p.name, p.version, p.index): p for p in old.packages if p.size}
    packages = tuple(
        replace(found, via=package.via)
        if not package.size and (found := known.get((package.name, package.version, package.index)))
        else package
        for package in new.packages
    )
    return replace(new, packages=packages)


def missing_packages(lock: Lock) -> tuple[LockedPackage, ...]:
    """Return the packages whose file is not known."""
    return tuple(package for package in lock.packages if not package.complete)


def published_at(package: LockedPackage, indexes: Mapping[str, Index]) -> str:
    """Return where the wheels of a package are published, or how the user provides them if they are on no index."""
    index = indexes.get(package.index)
    if index is not None and not index.urls:
        return "in a folder of yours, named by WHEELHOUSE (it is on no index)"
    pages = [f"{url.rstrip('/')}/{package.name}/" for url in index.urls] if index else []
    return f"on index {package.index}" + (f" ({' or '.join(pages)})" if pages else "")


def public_mirrors(names: Collection[str], indexes: Mapping[str, Index]) -> str:
    """Return how to set the public mirrors of indexes that have none in use; "" if there are none."""
    found = [
        f"{name}={page}"
        for name, index in sorted(indexes.items())
        for page in index.public_pages
        if name in names and not index.pages
    ]
    return f'use a public mirror: export CANNERY_MIRROR_PAGES="{" ".join(found)}"' if found else ""
