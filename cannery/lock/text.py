r"""The text form of a lock: requirements text that pip and uv can read, and its parser.

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

import json
import re
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion

from cannery.catalog.versions import parsed_version
from cannery.errors import UsageError
from cannery.lock.check import file_problem
from cannery.lock.lock import LOCK_SCHEMA, Lock, LockedPackage
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_VIA = r"(?:, via (?P<via>[^\s,]+(?:, [^\s,]+)*))?"
_INDEX = r"index (?P<index>[A-Za-z0-9._-]+)"
# The lines of an entry: its pin, its hash, and the comment of a file, or of a package without one.
_PIN = re.compile(r"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)==(?P<version>[0-9a-z.!+_-]{1,100})(?P<more> \\)?", re.ASCII)
_HASH = re.compile(r"    --hash=sha256:(?P<sha256>[0-9a-f]{64})", re.ASCII)
_FILE = re.compile(
    rf"    # (?P<file>[^\s,/]{{1,250}}), (?:(?P<size>[1-9]\d{{0,14}}) bytes|size unknown), {_INDEX}{_VIA}", re.ASCII
)
_MISSING = re.compile(rf"    # incomplete: {_INDEX} not reached{_VIA}", re.ASCII)


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
    reader = _Reader(text, where)
    header = reader.header()
    packages = tuple(reader.packages())
    if header["packages"] != len(packages):
        what = f"its header counts {header['packages']} packages, and it has {len(packages)}: merged or edited by hand"
        raise UsageError(what, where=where, hint="make lock")
    names = [package.name for package in packages]
    if names != sorted(set(names)):
        raise UsageError("its packages are not sorted, or one is named twice", where=where, hint=REMAKE)
    mine = {field.name: header[field.name] for field in fields(Lock) if field.name in header}
    lock = Lock(**{**mine, "arch": Arch(header["arch"]), "packages": packages})
    if header["complete"] is not lock.complete:
        raise reader.broken(1, "`complete` does not agree with the packages below")
    return lock


class _Reader:
    """The lines of a lock's text, taken one after the other."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        lines = text.replace("\r\n", "\n").split("\n")
        self.first = lines[0]
        self.last = len(lines)
        self.lines = [
            (number, line) for number, line in enumerate(lines[1:], 2) if line.strip() and not line.startswith("#")
        ]

    def broken(self, line: int, what: str) -> UsageError:
        return UsageError(what, where=f"{self.where}:{line}", hint=REMAKE)

    def header(self) -> dict[str, Any]:
        try:
            header = json.loads(self.first.removeprefix("# ")) if self.first.startswith("# ") else None
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise self.broken(1, "a lock starts with a JSON comment")
        if header.get("schema") != LOCK_SCHEMA:
            raise self.broken(1, f"schema {header.get('schema')!r} of a lock is not known, only {LOCK_SCHEMA}")
        wrong = sorted({*HEADER} ^ {*header}) or sorted(k for k, kind in HEADER.items() if type(header[k]) is not kind)
        if wrong:
            what = "fields of the JSON comment are missing, not known or of a wrong type"
            raise self.broken(1, f"{what}: {', '.join(wrong)}")
        if header["arch"] not in [*Arch]:
            raise self.broken(1, f"arch {header['arch']!r} is not known")
        return header

    def packages(self) -> Iterator[LockedPackage]:
        """Give the packages in their order."""
        while self.lines:
            number = self.lines[0][0]
            pin = self._next(_PIN, "not an entry of a lock")
            name, version = pin["name"], pin["version"]
            try:
                parsed_version(version)
            except InvalidVersion as error:
                raise self.broken(number, f"{name}: {version!r} is not a version") from error
            if pin["more"]:
                sha256 = self._next(_HASH, f"{name}: not `--hash=sha256:` and 64 hex digits")["sha256"]
                number = self.lines[0][0] if self.lines else self.last
                found = self._next(_FILE, f"{name}: not the comment of file, size and index")
                file, size = found["file"], int(found["size"] or 0)
            else:
                sha256, file, size = "", "", 0
                found = self._next(_MISSING, f"{name}: its hash is missing, or the comment of an incomplete package")
            via = tuple(found["via"].split(", ")) if found["via"] else ()
            package = LockedPackage(name, version, file, sha256, size, found["index"], via)
            if file and (problem := file_problem(package)):
                raise self.broken(number, problem)
            yield package

    def _next(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Take the next line, which has to match."""
        number, line = self.lines.pop(0) if self.lines else (self.last, "")
        found = pattern.fullmatch(line)
        if not found:
            raise self.broken(number, f"{what}: {line[:80]!r}")
        return found
