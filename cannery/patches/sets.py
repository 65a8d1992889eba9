"""A patch set: the patch files for one commit of one repository, found by that commit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from cannery.errors import FindingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Shorter hashes may be words, or fit another commit by chance.
SHORTEST = 7
_HASH = re.compile(rf"[0-9a-f]{{{SHORTEST},40}}")


@dataclass(frozen=True)
class PatchFile:
    """A patch file: its name without `.patch`, its text as git gets it, and the hex SHA-256 of the file."""

    name: str
    text: bytes
    digest: str


@dataclass(frozen=True)
class PatchSet:
    """The patches of `repo` for the commit `rev` (a full or short hash, as the folder says), from `origin` in words.

    `files` are in the order in which they apply, which is that of their names.
    """

    repo: str
    rev: str
    origin: str
    files: tuple[PatchFile, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.name)))

    @property
    def folder(self) -> str:
        """Its place in `origin`, as the user knows it."""
        return f"{self.repo}/{self.rev}"

    @property
    def keeper(self) -> str:
        """Who keeps it, in words: a plugin, or a folder of sets."""
        return self.origin.removesuffix(f"/{self.folder}")


def find_set(sets: Iterable[PatchSet], commit: str) -> PatchSet | None:
    """Return the set for `commit`, both being full or short hashes; None if there is none for it.

    Raises FindingsError where a set's revision or `commit` is no hash, or more than one set fits.
    """
    found = fitting_sets(sets, commit)
    if len(found) > 1:
        which = ", ".join(f"{one.folder} of {one.origin}" for one in found)
        raise FindingsError(f"more than one patch set fits commit {commit}: {which}", hint="keep one of them")
    return found[0] if found else None


def fitting_sets(sets: Iterable[PatchSet], commit: str) -> tuple[PatchSet, ...]:
    """Return the sets for `commit` in their order, all being full or short hashes.

    Raises FindingsError where a set's revision or `commit` is no hash.
    """
    known = tuple(sets)
    wanted = commit.lower()
    if not _HASH.fullmatch(wanted):
        raise FindingsError(f"{commit!r} is not a commit", hint=f"give a hash of {SHORTEST} to 40 hex digits")
    for one in known:
        if not _HASH.fullmatch(one.rev.lower()):
            what = f"the folder {one.folder} is not named by a commit, so it is unknown what its patches are for"
            hint = f"name it by the commit: {SHORTEST} to 40 hex digits"
            raise FindingsError(what, where=one.origin, hint=hint)
    return tuple(one for one in known if wanted.startswith(one.rev.lower()) or one.rev.lower().startswith(wanted))


def refuse_ambiguous(sets: Iterable[PatchSet], commit: str) -> None:
    """Raise `FindingsError` where the short hash `commit` is the beginning of several commits that have sets."""
    revisions = sorted({one.rev.lower() for one in sets})
    # Of one commit the folders may have more or fewer digits; sorted, a beginning comes before what it begins.
    others = [next_ for one, next_ in pairwise(revisions) if not next_.startswith(one)]
    if others:
        what = f"{commit!r} is the beginning of several commits that have sets: {', '.join(revisions)}"
        raise FindingsError(what, hint="give more digits")
