"""What differs between two images, and how it is printed: as text, Markdown and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from cannery.report.tables import Table, prose, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.report.contents import Contents

# Rows of a table that are shown at once; a longer one is folded.
FOLDED = 25
_WORDS = {"+": "added", "-": "removed", "~": "changed"}


@dataclass(frozen=True)
class Change:
    """One line of a difference: of which section, what, and its two values; "" is where it is not."""

    section: str
    name: str
    old: str
    new: str

    @property
    def sign(self) -> str:
        """`+` for what is new, `-` for what has gone, `~` for what has changed."""
        return "~" if self.old and self.new else "+" if self.new else "-"

    @property
    def is_older(self) -> bool:
        """Whether it is a package whose version has gone down."""
        if self.section != "packages" or self.sign != "~":
            return False
        try:
            return Version(self.new) < Version(self.old)
        except InvalidVersion:
            return False

    def __str__(self) -> str:
        if self.sign != "~":
            return f"{self.sign} {self.name} {self.old or self.new}"
        return f"~ {self.name} {self.old} → {self.new}{' (older)' if self.is_older else ''}"


@dataclass(frozen=True)
class Difference:
    """What differs: the names of both sides, each change by section, sections that one does not know.

    `layers` are (those of the new side that the old one does not have, all, the bytes of wheels in the former); None
    where they are not known.
    """

    old: str
    new: str
    changes: tuple[Change, ...]
    unknown: tuple[str, ...]
    layers: tuple[int, int, int] | None


def difference(old: Contents, new: Contents) -> Difference:
    """Compare two images. What only one of them knows is not compared, and named in `unknown`."""
    pairs: dict[str, tuple[Mapping[str, str] | None, Mapping[str, str] | None]] = {
        "image": _both(old.about, new.about),
        "packages": (old.packages, new.packages),
        "files": _both(old.files, new.files),
        "sources": (old.sources, new.sources),
        "patches": (old.patches, new.patches),
        "layers": (old.layers, new.layers),
        "environment": (old.env, new.env),
    }
    found: list[Change] = []
    for section, (one, other) in pairs.items():
        if one is not None and other is not None:
            names = dict.fromkeys([*one, *other])
            changed = [name for name in names if one.get(name) != other.get(name)]
            # The target and layers have an order of their own.
            changed = changed if section in {"image", "layers"} else sorted(changed)
            found += (
                Change(section, name, *_shown(section, _value(one, name), _value(other, name))) for name in changed
            )
    unknown = tuple(section for section, (one, other) in pairs.items() if one is None or other is None)
    layers = None
    if old.layers is not None and new.layers is not None:
        fresh = [name for name, digest in new.layers.items() if digest not in old.layers.values()]
        layers = (len(fresh), len(new.layers), sum(new.sizes.get(name, 0) for name in fresh))
    return Difference(old.name, new.name, tuple(_sized(one, old, new) for one in found), unknown, layers)


def _value(values: Mapping[str, str], name: str) -> str:
    """Return a value, "" where there is none; an empty one (of a variable) is in quotes."""
    return (values[name] or '""') if name in values else ""


def _shown(section: str, old: str, new: str) -> tuple[str, str]:
    """Return two values as they are printed: the start of hashes, of lists of paths what the other does not have."""
    if section == "files":
        return old[:12], new[:12]
    one, other = old.split(":"), new.split(":")
    if section != "environment" or "/" not in old or min(len(one), len(other)) == 1 or {*one} == {*other}:
        return old, new
    return ":".join(["…", *(p for p in one if p not in other)]), ":".join(["…", *(p for p in other if p not in one)])


def _sized(change: Change, old: Contents, new: Contents) -> Change:
    """Return a change with the bytes of its layer, where they are known."""
    if change.section != "layers":
        return change
    one, other = (
        f", {side.sizes[change.name] / 1e6:.1f} MB" if change.name in side.sizes else "" for side in (old, new)
    )
    return replace(change, old=change.old and change.old + one, new=change.new and change.new + other)


def _both(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return what both name. Of files: the same name with another hash is another file."""
    names = [name for name in old if name in new]
    return {name: old[name] for name in names}, {name: new[name] for name in names}


def text_lines(found: Difference) -> Iterator[str]:
    """Give the lines that `diff` prints."""
    yield f"{found.old} → {found.new}"
    for section, group in groupby(found.changes, key=lambda one: one.section):
        changes = list(group)
        counts = {word: sum(one.sign == sign for one in changes) for sign, word in _WORDS.items()}
        yield f"{section}: {', '.join(f'{count} {word}' for word, count in counts.items() if count)}"
        yield from (f"  {one}" for one in changes)
    if not found.changes:
        yield "no difference"
    yield from ends(found)


def ends(found: Difference) -> Iterator[str]:
    """Give what is to know beside the changes: how many layers are new, and what was not compared."""
    if found.layers is not None:
        count, total, size = found.layers
        yield f"{count} of {total} layers are new" + (f", {size / 1e6:.1f} MB of wheels" if size else "")
    if found.unknown:
        yield f"not compared, since one side does not have it: {', '.join(found.unknown)}"


def tables(found: Difference) -> Iterator[Table]:
    """Give a table of each section, folded where it is long."""
    for section, group in groupby(found.changes, key=lambda one: one.section):
        rows = tuple((one.name, one.old, f"{one.new}{' (older)' * one.is_older}") for one in group)
        yield Table(section, ("name", "old", "new"), rows, open=len(rows) <= FOLDED)


def markdown_lines(found: Difference) -> Iterator[str]:
    """Give the same as Markdown, for a pull request."""
    yield f"## {prose(found.old)} → {prose(found.new)}"
    for table in tables(found):
        yield from table_lines(table)
    yield from () if found.changes else ("", "No difference.")
    yield from (f"\n{line[:1].upper()}{line[1:]}." for line in ends(found))


def json_value(found: Difference) -> dict[str, Any]:
    """Return the same as JSON values."""
    layers = dict(zip(("new", "all", "bytes"), found.layers, strict=True)) if found.layers else None
    changes = [{**asdict(one), "change": _WORDS[one.sign]} for one in found.changes]
    return {
        "old": found.old,
        "new": found.new,
        "changes": changes,
        "not_compared": list(found.unknown),
        "layers": layers,
    }
