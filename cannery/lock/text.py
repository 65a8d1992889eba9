r"""The text form of a lock: requirements text that pip and uv can read, and its parser.

First line: a JSON comment with what the lock was made from and how many packages follow. Then, sorted by name, one
entry a package:

    absl-py==2.5.1 \
        --hash=sha256:…
        # absl_py-2.5.1-py3-none-any.whl, 135750 bytes, index default, via tensorboard

Index names and no URLs, so that any mirror serves it. A package whose index was not reached has no hash, and its
comment says so. Lines that start with `#` in the first column and empty lines are skipped.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cannery.errors import UsageError
from cannery.lock.check import file_problem
from cannery.lock.lock import LOCK_SCHEMA, Lock, LockedPackage
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator

REMAKE = "make it anew with `build.py lock`; a lock is not edited by hand"
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
PIN = re.compile(r"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)==(?P<version>[0-9a-z.!+_-]{1,100})(?P<more> \\)?", re.ASCII)
HASH = re.compile(r"    --hash=sha256:(?P<sha256>[0-9a-f]{64})", re.ASCII)
VIA = r"(?:, via (?P<via>[^\s,]+(?:, [^\s,]+)*))?"
INDEX = r"(?P<index>[A-Za-z0-9._-]+)"
FILE_COMMENT = re.compile(
    rf"    # (?P<file>[^\s,/]{{1,250}}), (?P<size>[1-9]\d{{0,14}}) bytes, index {INDEX}{VIA}", re.ASCII
)
MISSING_COMMENT = re.compile(rf"    # incomplete: index {INDEX} not reached{VIA}", re.ASCII)


def format_lock(lock: Lock) -> str:
    """Return the text of `lock`; `parse_lock` gives the same lock back."""
    header = {
        "schema": LOCK_SCHEMA,
        "profile": lock.profile,
        "python": lock.python,
        "arch": str(lock.arch),
        "inputs": lock.inputs,
        "exclude_newer": lock.exclude_newer,
        "complete": lock.complete,
        "packages": len(lock.packages),
        "resolver": lock.resolver,
    }
    lines = [f"# {json.dumps(header)}"]
    for package in lock.packages:
        lines.extend(_entry(package))
    return "\n".join(lines) + "\n"


def _entry(package: LockedPackage) -> tuple[str, ...]:
    via = f", via {', '.join(package.via)}" if package.via else ""
    pin = f"{package.name}=={package.version}"
    if not package.complete:
        return pin, f"    # incomplete: index {package.index} not reached{via}"
    comment = f"    # {package.file}, {package.size} bytes, index {package.index}{via}"
    return f"{pin} \\", f"    --hash=sha256:{package.sha256}", comment


def parse_lock(text: str, where: str) -> Lock:
    """Read the text of a lock. `where` is its file's name, for messages.

    Raises `UsageError` naming file and line when the text is not what `format_lock` writes.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    header = _header(lines[0], where)
    packages = tuple(_packages(lines, where))
    if header["packages"] != len(packages):
        what = f"says {header['packages']} packages and has {len(packages)}: merged or edited by hand"
        raise UsageError(what, where=where, hint="make lock")
    names = [package.name for package in packages]
    if names != sorted(set(names)):
        raise UsageError("its packages are not sorted, or one is named twice", where=where, hint=REMAKE)
    lock = Lock(
        profile=str(header["profile"]),
        python=str(header["python"]),
        arch=Arch(str(header["arch"])),
        inputs=str(header["inputs"]),
        exclude_newer=str(header["exclude_newer"]),
        resolver=str(header["resolver"]),
        packages=packages,
    )
    if header["complete"] is not lock.complete:
        raise _broken(where, 1, "`complete` does not agree with the packages below")
    return lock


def _broken(where: str, line: int, what: str) -> UsageError:
    return UsageError(what, where=f"{where}:{line}", hint=REMAKE)


def _header(line: str, where: str) -> dict[str, object]:
    try:
        header = json.loads(line.removeprefix("# ")) if line.startswith("# ") else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _broken(where, 1, "a lock starts with a JSON comment")
    schema = header.get("schema")
    if schema != LOCK_SCHEMA:
        raise _broken(where, 1, f"schema {schema!r} of a lock is not known, only {LOCK_SCHEMA}")
    wrong = sorted({*HEADER} ^ {*header}) or sorted(k for k, kind in HEADER.items() if type(header[k]) is not kind)
    if wrong:
        raise _broken(
            where, 1, f"fields of the JSON comment are missing, not known or of a wrong type: {', '.join(wrong)}"
        )
    if header["arch"] not in [*Arch]:
        raise _broken(where, 1, f"arch {header['arch']!r} is not known")
    return header


def _packages(lines: list[str], where: str) -> Iterator[LockedPackage]:
    number = 1
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line.strip() or line.startswith("#"):
            continue
        pin = PIN.fullmatch(line)
        if not pin:
            raise _broken(where, number, f"not an entry of a lock: {line[:80]!r}")
        count = 2 if pin["more"] else 1
        yield _package(pin, lines[number : number + count], where, number)
        number += count


def _package(pin: re.Match[str], rest: list[str], where: str, line: int) -> LockedPackage:
    """One entry, whose first line has the number `line`."""
    name, version = pin["name"], pin["version"]
    _check_version(name, version, where, line)
    sha256 = ""
    if pin["more"]:
        found = HASH.fullmatch(rest.pop(0)) if rest else None
        if not found:
            raise _broken(where, line + 1, f"{name}: here stands `--hash=sha256:` and 64 hex digits")
        sha256, line = found["sha256"], line + 1
    pattern = FILE_COMMENT if sha256 else MISSING_COMMENT
    comment = pattern.fullmatch(rest[0]) if rest else None
    if not comment:
        wanted = "file, size, index" if sha256 else "an incomplete package, or its hash is missing"
        raise _broken(where, line + 1, f"{name}: here stands the comment of {wanted}")
    via = tuple(comment["via"].split(", ")) if comment["via"] else ()
    if not sha256:
        return LockedPackage(name, version, "", "", 0, comment["index"], via)
    package = LockedPackage(name, version, comment["file"], sha256, int(comment["size"]), comment["index"], via)
    problem = file_problem(package)
    if problem:
        raise _broken(where, line + 1, problem)
    return package


def _check_version(name: str, version: str, where: str, line: int) -> None:
    try:
        Version(version)
    except InvalidVersion as error:
        raise _broken(where, line, f"{name}: {version!r} is not a version") from error
