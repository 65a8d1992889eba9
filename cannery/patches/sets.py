"""A patch set: the patch files for one commit of one repository, found by that commit; their text; which there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.errors import FindingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cannery.catalog.catalog import Catalog

# Shorter hashes may be words, or fit another commit by chance.
SHORTEST = 7
HASH = re.compile(rf"[0-9a-f]{{{SHORTEST},40}}")
HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
SIDES = re.compile(rb"^--- ([^\t\r\n]+).*\n\+\+\+ ([^\t\r\n]+)", re.MULTILINE)
CRLF_HEADER = re.compile(rb"^\+\+\+ .*\r$", re.MULTILINE)
# Digits of a commit that are shown.
SHOWN = 12


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
    if not HASH.fullmatch(wanted):
        raise FindingsError(f"{commit!r} is not a commit", hint=f"give a hash of {SHORTEST} to 40 hex digits")
    for one in known:
        if not HASH.fullmatch(one.rev.lower()):
            what = f"the folder {one.folder} is not named by a commit, so it is unknown what its patches are for"
            hint = f"name it by the commit: {SHORTEST} to 40 hex digits"
            raise FindingsError(what, where=one.origin, hint=hint)
    return tuple(one for one in known if wanted.startswith(one.rev.lower()) or one.rev.lower().startswith(wanted))


def completed(text: bytes, lost: int) -> bytes:
    """Return the text of a patch that is cut off at its end, such that git reads it.

    `lost` is how many context lines of its last hunk are damaged: 1, its last line has no end; 2, the line after
    that one is lost too.
    """
    headers = list(re.finditer(rb"^" + HUNK.pattern, text, re.MULTILINE))
    if headers and lost > 1:
        old, new = (int(headers[-1][group] or 1) - lost + 1 for group in (2, 4))
        last = headers[-1]
        header = b"@@ -%d,%d +%d,%d @@" % (int(last[1]), old, int(last[3]), new)
        text = text[: last.start()] + header + text[last.end() :]
    return text + b"\n"


def with_line_feeds(text: bytes) -> bytes:
    """Return a patch whose own header lines end in CRLF with line feeds: an editor or a checkout has changed it."""
    return text.replace(b"\r\n", b"\n") if CRLF_HEADER.search(text) else text


def strip_level(text: bytes) -> int:
    """Return how many folders git takes off the paths: none where both sides of each file are the same path.

    That is how git writes them under `diff.noprefix`. Tools that write `a/` on both sides mean it as a prefix.
    """
    sides = [pair for pair in SIDES.findall(text) if b"/dev/null" not in pair]
    return 0 if sides and all(old == new and not old.startswith((b"a/", b"b/")) for old, new in sides) else 1


def surplus(text: bytes) -> int | None:
    """Return the line after the first hunk that has more lines than its header counts: git would ignore them."""
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
    """A patch set: what component and revision it is for, where it is kept, and the profiles that use it."""

    component: str
    rev: str
    origin: str
    profiles: tuple[str, ...]

    def __str__(self) -> str:
        used = f"used by {', '.join(self.profiles)}" if self.profiles else "used by no profile"
        return f"{self.rev[:SHOWN]:<{SHOWN}}  {self.origin}; {used}"


def kept_sets(catalog: Catalog, sets: Sequence[PatchSet]) -> tuple[KeptSet, ...]:
    """Return every set that plugins of the catalog keep, then those of folders, by component and revision."""
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
    """Return the source component that a repo's name means: its own name, one with that package, or a plugin's word."""
    sources = catalog.sources
    wanted = canonicalize_name(repo)
    words = {word: name for one in sources.values() if one.patch_sets for word, name in one.patch_sets.repos.items()}
    by_package = {canonicalize_name(one.package or name): name for name, one in reversed(sources.items())}
    return repo if repo in sources else words.get(repo) or by_package.get(wanted)


def _users(catalog: Catalog, component: str, rev: str, plugin: tuple[str, str] | None) -> tuple[str, ...]:
    """Return the profiles that pin a component to `rev`, and the plugin (name, commit) that keeps the set."""
    found = []
    for name, profile in catalog.profiles.items():
        commits = {pin.name: pin.commit for pin in profile.components}
        if (commits.get(component) or "").startswith(rev) and (plugin is None or commits.get(plugin[0]) == plugin[1]):
            found.append(name)
    return tuple(sorted(found))
