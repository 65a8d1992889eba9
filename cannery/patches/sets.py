"""Patch sets: the patch files for one commit of one repository, the search for them by commit, and their text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.errors import FindingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cannery.catalog.catalog import Catalog

# Shorter hashes may be words, or match another commit by chance.
SHORTEST = 7
HASH = re.compile(rf"[0-9a-f]{{{SHORTEST},40}}")
HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
SIDES = re.compile(rb"^--- ([^\t\r\n]+).*\n\+\+\+ ([^\t\r\n]+)", re.MULTILINE)
CRLF_HEADER = re.compile(rb"^\+\+\+ .*\r$", re.MULTILINE)
# Digits of a commit that are shown.
SHOWN = 12


@dataclass(frozen=True)
class PatchFile:
    """A patch file: its name without `.patch`, its text for git, and the hex SHA-256 of the file."""

    name: str
    text: bytes
    digest: str


@dataclass(frozen=True)
class PatchSet:
    """The patches of `repo` for the commit `rev` (a full or short hash, from the folder name). `origin` is a text.

    `files` are sorted by name, and are applied in this order.
    """

    repo: str
    rev: str
    origin: str
    files: tuple[PatchFile, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.name)))

    @property
    def folder(self) -> str:
        """Its folder in `origin`."""
        return f"{self.repo}/{self.rev}"

    @property
    def keeper(self) -> str:
        """The plugin or the folder of sets that has it."""
        return self.origin.removesuffix(f"/{self.folder}")


def find_set(sets: Iterable[PatchSet], commit: str) -> PatchSet | None:
    """Return the set for `commit`, or None. Both hashes may be full or short.

    Raises `FindingsError` if `commit` or the revision of a set is not a hash, or if more than one set fits.
    """
    found = fitting_sets(sets, commit)
    if len(found) > 1:
        which = ", ".join(f"{one.folder} of {one.origin}" for one in found)
        raise FindingsError(f"more than one patch set fits commit {commit}: {which}", hint="keep one of them")
    return found[0] if found else None


def fitting_sets(sets: Iterable[PatchSet], commit: str) -> tuple[PatchSet, ...]:
    """Return the sets for `commit` in order. All hashes may be full or short.

    Raises `FindingsError` if `commit` or the revision of a set is not a hash.
    """
    known = tuple(sets)
    wanted = commit.lower()
    if not HASH.fullmatch(wanted):
        raise FindingsError(f"{commit!r} is not a commit", hint=f"give a hash of {SHORTEST} to 40 hex digits")
    for one in known:
        if not HASH.fullmatch(one.rev.lower()):
            what = f"the folder {one.folder} is not named by a commit, so it is unknown what its patches are for"
            hint = f"name it by the commit: {SHORTEST} to 40 hex digits"
            raise FindingsError(what, where=one.origin, hint=hint)
    return tuple(one for one in known if wanted.startswith(one.rev.lower()) or one.rev.lower().startswith(wanted))


def completed(text: bytes, lost: int) -> bytes:
    """Return the text of a truncated patch, completed so that git can read it.

    `lost` is the number of damaged context lines in its last hunk. 1: the last line has no line end. 2: the line after
    it is missing too.
    """
    headers = list(re.finditer(rb"^" + HUNK.pattern, text, re.MULTILINE))
    if headers and lost > 1:
        old, new = (int(headers[-1][group] or 1) - lost + 1 for group in (2, 4))
        last = headers[-1]
        header = b"@@ -%d,%d +%d,%d @@" % (int(last[1]), old, int(last[3]), new)
        text = text[: last.start()] + header + text[last.end() :]
    return text + b"\n"


def with_line_feeds(text: bytes) -> bytes:
    """Return a patch with LF line ends if its header lines end in CRLF, which an editor or a checkout has added."""
    return text.replace(b"\r\n", b"\n") if CRLF_HEADER.search(text) else text


def strip_level(text: bytes) -> int:
    """Return how many folders git strips from the paths: 0 if both sides of each file have the same path, else 1.

    Git writes equal paths with `diff.noprefix`. `a/` on both sides is still a prefix.
    """
    sides = [pair for pair in SIDES.findall(text) if b"/dev/null" not in pair]
    return 0 if sides and all(old == new and not old.startswith((b"a/", b"b/")) for old, new in sides) else 1


def surplus(text: bytes) -> int | None:
    """Return the number of the first line after a hunk that is longer than its header counts. Git would ignore it."""
    lines = [*text.split(b"\n"), b""]
    at = 0
    while at < len(lines):
        header = HUNK.match(lines[at])
        at += 1
        if not header:
            continue
        old, new = int(header[2] or 1), int(header[4] or 1)
        while (old > 0 or new > 0) and at < len(lines) - 1:
            sign = lines[at][:1]
            old -= sign not in {b"+", b"\\"}
            new -= sign not in {b"-", b"\\"}
            at += 1
        line = lines[at]
        is_header = line.startswith(b"--- ") and lines[at + 1].startswith(b"+++ ")
        if line[:1] in {b"+", b"-", b" "} and line.strip() not in {b"", b"--"} and not is_header:
            return at + 1
    return None


@dataclass(frozen=True)
class KeptSet:
    """A patch set: its component and revision, its origin, and the profiles that use it."""

    component: str
    rev: str
    origin: str
    profiles: tuple[str, ...]

    def __str__(self) -> str:
        used = f"used by {', '.join(self.profiles)}" if self.profiles else "used by no profile"
        return f"{self.rev[:SHOWN]:<{SHOWN}}  {self.origin}; {used}"


def kept_sets(catalog: Catalog, sets: Sequence[PatchSet]) -> tuple[KeptSet, ...]:
    """Return all sets of plugins in the catalog and of folders, sorted by component and revision."""
    found = [
        KeptSet(patched, rev, f"{plugin} at {commit[:SHOWN]}", _users(catalog, patched, rev, (plugin, commit)))
        for plugin, component in catalog.sources.items()
        for commit, revision in component.revisions.items()
        for patched, commits in revision.patches.items()
        for rev in commits
    ]
    for one in sets:
        name = component_named(catalog, one.repo) or one.repo
        found.append(KeptSet(name, one.rev, one.origin, _users(catalog, name, one.rev, None)))
    return tuple(sorted(found, key=lambda one: (one.component, one.rev)))


def component_named(catalog: Catalog, repo: str) -> str | None:
    """Return the source component for a repo: by name, by a plugin's name for it, or by package."""
    sources = catalog.sources
    wanted = canonicalize_name(repo)
    words = {word: name for one in sources.values() if one.patch_sets for word, name in one.patch_sets.repos.items()}
    by_package = {canonicalize_name(one.package or name): name for name, one in reversed(sources.items())}
    return repo if repo in sources else words.get(repo) or by_package.get(wanted)


def _users(catalog: Catalog, component: str, rev: str, plugin: tuple[str, str] | None) -> tuple[str, ...]:
    """Return the profiles that pin a component to `rev`, and the `plugin` of the set to its commit."""
    found = []
    for name, profile in catalog.profiles.items():
        commits = {pin.name: pin.commit for pin in profile.components}
        if (commits.get(component) or "").startswith(rev) and (plugin is None or commits.get(plugin[0]) == plugin[1]):
            found.append(name)
    return tuple(sorted(found))
