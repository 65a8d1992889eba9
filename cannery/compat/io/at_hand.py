"""Reports before a build what verify would report about wheels on this host: unmet requirements and unusable modules.

The wheels are in the store or in the user's wheelhouse. The resolver meets all requirements of wheels, except those
that the profile overrides.
"""

from __future__ import annotations

import json
import re
import zipfile
from contextlib import suppress
from email.parser import HeaderParser
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from packaging.utils import canonicalize_name

from cannery.catalog.target import package_name
from cannery.compat.subject import Finding, error, warning
from cannery.lock.io.wheels import is_in_store, store_path, wheel_metadata
from cannery.recipe.recipe import left_out
from cannery.util.io.files import read_json, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cannery.catalog.target import PackageRequirement
    from cannery.compat.subject import Subject
    from cannery.lock.lock import LockedPackage

# A wheel's Requires-Dist, and its modules that the target's Python cannot run. `FORM` is the version of the cache.
Facts: TypeAlias = "tuple[list[str], list[str]]"
FORM = 1
# The magic number of byte code of each Python (CPython's Include/internal/pycore_magic_number.h).
MAGIC = {"3.10": 3439, "3.11": 3495, "3.12": 3531, "3.13": 3571, "3.14": 3627}


class Wheel(NamedTuple):
    """A wheel: its package and version, its Requires-Dist, and its modules that the target's Python cannot run."""

    name: str
    version: str
    requires: tuple[str, ...]
    unusable: tuple[str, ...]


def wheel_findings(subject: Subject, wheels: Iterable[Wheel]) -> Iterator[Finding]:
    """Report failures of `pip check` and of imports in the image."""
    for wheel in wheels:
        if wheel.unusable:
            more = f" and {len(wheel.unusable) - 1} more" if len(wheel.unusable) > 1 else ""
            what = f"{wheel.name} {wheel.version}: {wheel.unusable[0]}{more}"
            fix = f"take a wheel of it for Python {subject.recipe.target.python}"
            yield error("wheel-module", what, "an import in the image fails on it", fix)
        for requirement in subject.live(wheel.requires):
            yield from _unmet(subject, wheel, requirement)


def _unmet(subject: Subject, wheel: Wheel, requirement: PackageRequirement) -> Iterator[Finding]:
    profile, name = subject.recipe.profile, requirement.package
    version, asker = subject.versions.get(name), f"{wheel.name} {wheel.version}"
    wanted = requirement.wanted
    if version is None:
        absent = {package_name(e.requirement) for e in profile.excludes} | {o.name for o in left_out(subject.recipe)}
        if name not in absent | {source.package for source in subject.recipe.sources}:
            yield from _line(subject, f"{asker} requires {requirement.name}, which is not installed.")
    elif not requirement.allows(version):
        if name not in subject.overridden:
            yield from _line(subject, f"{asker} has requirement {wanted}, but you have {name} {version}.")
        reasons = [o.reason for o in profile.overrides if package_name(o.requirement) == name]
        if reasons and not any(wheel.name in canonicalize_name(reason.replace(" ", "-")) for reason in reasons):
            what = f"{asker} asks for {wanted}, which the override of {name} contradicts: the set has {name} {version}"
            fix = f"say in the override's reason why {wheel.name} works with it, or override {name} within that bound"
            yield warning("override-bound", what, f"{subject.recipe.file}: {'; '.join(reasons)}", fix)


def _line(subject: Subject, line: str) -> Iterator[Finding]:
    if not any(re.search(pattern, line) for pattern in subject.recipe.profile.pip_check_allow):
        yield error(
            "pip-check",
            f"`pip check` in the image would report: {line}",
            "verify fails on each line of it that the profile does not allow",
            f"change the set, or add a pattern of that line to `pip_check_allow` in {subject.recipe.file}",
        )


def wheels_at_hand(packages: Iterable[LockedPackage], cache: Path, own: Path | None, python: str) -> Iterator[Wheel]:
    """Yield the wheels of `packages` that are in the store below `cache` or in the folder `own`, for Python `python`.

    A file that is not a wheel is skipped: a build reports it. The facts about wheels in the store are cached by hash.
    """
    note = cache / "wheels" / "facts" / f"{python}-{FORM}.json"
    known, new = read_json(note, dict[str, Facts]) or {}, dict[str, Facts]()
    for package in packages:
        stored = is_in_store(package, cache)
        path = store_path(package, cache) if stored or own is None else own / package.file
        if not package.file.endswith(".whl") or not path.is_file():
            continue
        facts = known.get(package.sha256) if stored else None
        if facts is None:
            try:
                with zipfile.ZipFile(path) as archive:
                    headers = HeaderParser().parsestr(wheel_metadata(archive))
                    facts = headers.get_all("Requires-Dist") or [], list(_unusable(archive, python))
            except (OSError, zipfile.BadZipFile):
                continue
            if stored:
                new[package.sha256] = facts
        requires, unusable = facts
        yield Wheel(package.name, package.version, tuple(requires), tuple(unusable))
    if new:
        with suppress(OSError):  # a full or read-only disk: the next run reads the wheels again
            write_atomic(note, json.dumps(known | new))


def _unusable(archive: zipfile.ZipFile, python: str) -> Iterator[str]:
    """Yield the modules that exist only as byte code of another Python."""
    sources = {name for name in archive.namelist() if name.endswith(".py")}
    of = {number: version for version, number in MAGIC.items()}
    for name in archive.namelist():
        if name.endswith(".pyc") and "__pycache__/" not in name and name.removesuffix("c") not in sources:
            with archive.open(name) as file:
                magic = int.from_bytes(file.read(2), "little")
            if python in MAGIC and magic != MAGIC[python]:
                yield f"{name} is byte code of Python {of.get(magic, '?')} without its source"
