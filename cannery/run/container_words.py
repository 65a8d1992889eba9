"""What a user writes after -v, -e and --name: refused here, where the message can say what is wanted, not by docker."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

# Docker's own rule; every name that it takes becomes one of Kubernetes'.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
_VARIABLE = re.compile(r"[^\s=\0]+")
_MOST_PARTS = 3  # SRC, DST, options
# A source that is no path is the name of a volume.
_FOLDER = re.compile(r"/|\.\.?(?:/|$)")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
_OPTIONS = frozenset(
    {
        *("ro", "rw", "z", "Z", "copy", "nocopy", "consistent", "cached", "delegated"),
        *("shared", "rshared", "slave", "rslave", "private", "rprivate"),
    }
)


def refuse_unfit_words(volumes: Iterable[str], env: Iterable[str], name: str | None) -> None:
    """Raise `UsageError` for a volume, a variable or a name that no engine takes, or two volumes at one place."""
    if name is not None and not _NAME.fullmatch(name):
        hint = "two or more of letters, digits, `_`, `.` and `-`, a letter or digit first"
        raise UsageError(f"--name: {name!r} is no name of a container", hint=hint)
    for text in env:
        if not _VARIABLE.fullmatch(text.partition("=")[0]):
            hint = "NAME=VALUE, or NAME for the value that it has here; a name has no blanks"
            raise UsageError(f"-e {text!r} names no variable", hint=hint)
    targets: dict[PurePosixPath, str] = {}
    for text in volumes:
        target = volume_target(text)
        if target in targets:
            what = f"-v {targets[target]} and -v {text}: both are to stand at {target}"
            raise UsageError(what, hint="give each a place of its own")
        targets[target] = text


def host_folder(text: str) -> str:
    """Return the path of the host in a volume, "" for the name of a volume and where there is none."""
    source, colon, _ = text.partition(":")
    return source if colon and _FOLDER.match(source) else ""


def volume_target(text: str) -> PurePosixPath:
    """Return where docker's `[SRC:]DST[:OPTIONS]` stands in the container. Raises `UsageError` for anything else."""
    parts = text.split(":")
    target = parts[min(1, len(parts) - 1)]
    if not parts[0] or not target.startswith("/") or len(parts) > _MOST_PARTS:
        hint = "SRC:DST[:ro], DST a path from / on; a path with a colon in it cannot be said so"
        raise UsageError(f"-v {text!r} is no volume", hint=hint)
    if not _FOLDER.match(parts[0]) and not _VOLUME.fullmatch(parts[0]):
        hint = "a folder from / or ./ on (`~` is the shell's to put in: not within quotes), or the name of a volume"
        raise UsageError(f"-v {text!r}: {parts[0]!r} is neither a folder nor the name of a volume", hint=hint)
    unknown = [word for part in parts[2:] for word in part.split(",") if word not in _OPTIONS]
    if unknown:
        hint = did_you_mean(unknown[0], ("ro", "rw", "z", "Z"))
        raise UsageError(f"-v {text!r}: {unknown[0]!r} is no option of a volume", hint=hint)
    if not PurePosixPath(target).name:
        raise UsageError(f"-v {text!r} would stand in the place of all of the image", hint="a folder below /")
    return PurePosixPath(target)
