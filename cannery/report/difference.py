"""Compares two images by their plans, locks or manifests, and writes the difference as text, tables or JSON."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from cannery.plan.manifest import MANIFEST_SCHEMA, UNKNOWN, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.compatibility import Compatibility
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.plan import Plan


# A table with more rows is folded.
FOLDED = 25
_WORDS = {"+": "added", "-": "removed", "~": "changed"}


@dataclass(frozen=True)
class Change:
    """One line of a difference: its section, name, and both values; "" for a side that does not have it."""

    section: str
    name: str
    old: str
    new: str

    @property
    def sign(self) -> str:
        """`+` for added, `-` for removed, `~` for changed."""
        return "~" if self.old and self.new else "+" if self.new else "-"

    @property
    def is_older(self) -> bool:
        """Whether it is a package with an older version on the new side."""
        if self.section != "packages" or self.sign != "~":
            return False
        try:
            return Version(self.new) < Version(self.old)
        except InvalidVersion:
            return False

    def __str__(self) -> str:
        if self.sign != "~":
            value = self.old or self.new
            return f"{self.sign} {self.name}" if value == self.name else f"{self.sign} {self.name} {value}"
        return f"~ {self.name} {self.old} → {self.new}{' (older)' if self.is_older else ''}"


@dataclass(frozen=True)
class Difference:
    """The difference of two sides: their names, the changes by section, the sections that one side does not know.

    `layers` is (new layers, all layers of the new side, bytes of wheels in the new layers); None if not known.
    """

    old: str
    new: str
    changes: tuple[Change, ...]
    unknown: tuple[str, ...]
    layers: tuple[int, int, int] | None


def difference(old: Contents, new: Contents) -> Difference:
    """Compare two images. A section that only one of them knows is not compared; `unknown` names it."""
    if old.is_built != new.is_built and new.layers is not None:
        old = replace(old, layers=None)  # digests of another kind
    pairs: dict[str, tuple[Mapping[str, str] | None, Mapping[str, str] | None]] = {
        "image": _common(old.about, new.about),
        "packages": (old.packages, new.packages),
        "files": _common(old.files, new.files),
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
            # The parts of a target, and layers, stay in their order.
            changed = changed if section in {"image", "layers"} else sorted(changed)
            found += (
                Change(section, name, *_shown(section, _value(one, name), _value(other, name))) for name in changed
            )
    unknown = tuple(section for section, (one, other) in pairs.items() if (one is None) != (other is None))
    layers = None
    if old.layers is not None and new.layers is not None:
        fresh = [name for name, digest in new.layers.items() if digest not in old.layers.values()]
        layers = (len(fresh), len(new.layers), sum(new.sizes.get(name, 0) for name in fresh))
    return Difference(old.name, new.name, tuple(_sized(one, old, new) for one in found), unknown, layers)


def _value(values: Mapping[str, str], name: str) -> str:
    """Return a value, "" if there is none. The empty value of a variable is shown as a pair of quotes."""
    return (values[name] or '""') if name in values else ""


def _shown(section: str, old: str, new: str) -> tuple[str, str]:
    """Return two values for printing. Hashes are shortened, and path lists only have the entries that differ."""
    if section == "files":
        return old[:12], new[:12]
    one, other = old.split(":"), new.split(":")
    if section != "environment" or "/" not in old or min(len(one), len(other)) == 1 or {*one} == {*other}:
        return old, new
    return ":".join(["…", *(p for p in one if p not in other)]), ":".join(["…", *(p for p in other if p not in one)])


def _sized(change: Change, old: Contents, new: Contents) -> Change:
    """Return a change with the size of its layer, if it is known."""
    if change.section != "layers":
        return change
    one, other = (
        f", {side.sizes[change.name] / 1e6:.1f} MB" if change.name in side.sizes else "" for side in (old, new)
    )
    return replace(change, old=change.old and change.old + one, new=change.new and change.new + other)


def _common(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the entries of names that both sides have."""
    names = [name for name in old if name in new]
    return {name: old[name] for name in names}, {name: new[name] for name in names}


def text_lines(found: Difference) -> Iterator[str]:
    """Yield the lines that `diff` prints."""
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
    """Yield notes on the changes: how many layers are new, and which sections were not compared."""
    if found.layers is not None:
        count, total, size = found.layers
        yield f"{count} of {total} layers are new" + (f", {size / 1e6:.1f} MB of wheels" if size else "")
    if found.unknown:
        yield f"not compared, since one side does not have it: {', '.join(found.unknown)}"


def tables(found: Difference) -> Iterator[Table]:
    """Yield a table for each section, folded if it is long."""
    for section, group in groupby(found.changes, key=lambda one: one.section):
        rows = tuple((one.name, one.old, f"{one.new}{' (older)' * one.is_older}") for one in group)
        yield Table(section, ("name", "old", "new"), rows, open=len(rows) <= FOLDED)


def markdown_lines(found: Difference) -> Iterator[str]:
    """Yield the lines of the difference as Markdown, for a pull request."""
    yield f"## {prose(found.old)} → {prose(found.new)}"
    for table in tables(found):
        yield from table_lines(table)
    yield from () if found.changes else ("", "No difference.")
    yield from (f"\n{line[:1].upper()}{line[1:]}." for line in ends(found))


def json_value(found: Difference) -> dict[str, Any]:
    """Return the difference as JSON values."""
    layers = dict(zip(("new", "all", "bytes"), found.layers, strict=True)) if found.layers else None
    changes = [{**asdict(one), "change": _WORDS[one.sign]} for one in found.changes]
    unknown = list(found.unknown)
    return {"old": found.old, "new": found.new, "changes": changes, "not_compared": unknown, "layers": layers}


@dataclass(frozen=True)
class Table:
    """A table with a title, whose first column has names. It is folded if it is not `open`."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    open: bool = True


def table_lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table in Markdown, with its title."""
    title = f"{table.title}: {len(table.rows)}"
    yield from ("", f"### {title}") if table.open else ("", f"<details><summary>{title}</summary>")
    yield from ("", f"| {' | '.join(table.head)} |", "|---" * len(table.head) + "|")
    yield from (f"| {' | '.join(map(prose, row))} |" for row in table.rows)
    yield from () if table.open else ("", "</details>")


def prose(text: str) -> str:
    """Return text escaped for a line or a table cell in Markdown."""
    return re.sub(r"([\\`*_~<>|\[\]])", r"\\\1", " ".join(text.split()))


@dataclass(frozen=True)
class Contents:
    """The known facts about one image; None if unknown.

    - `packages`: {name: version}; `files`: {file name of a wheel: hex SHA-256}
    - `about`: {word: text} of the target, base and plan
    - `sources`: {component: version and commit}; `patches`: {name: digest}
    - `layers`: {name: digest}, lowest first, of a plan; if `is_built`, the first
      12 digits of the DiffIDs of an image, which no plan has, as name and digest
    - `sizes`: {layer: bytes of wheels}
    - `env`: {variable: value}
    """

    name: str
    packages: Mapping[str, str]
    about: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] | None = None
    patches: Mapping[str, str] | None = None
    layers: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None
    is_built: bool = False


def of_lock(name: str, lock: Lock) -> Contents:
    """Return the contents of a lock, which only has packages."""
    return Contents(
        name,
        packages={package.name: package.version for package in lock.packages},
        about={"profile": lock.profile, "python": lock.python, "arch": str(lock.arch)},
        files=_files(lock.packages),
    )


def of_manifest(name: str, value: Mapping[str, Any]) -> Contents:
    """Return the contents of a manifest (docs/manifest.schema.json). Raises `ValueError` if it is not one."""
    if value.get("schema") != MANIFEST_SCHEMA:
        raise ValueError(f"schema {value.get('schema')!r} of a manifest is not known, only {MANIFEST_SCHEMA}")
    try:
        wheels, base, target = value["wheels"], value["base"], value["target"]
        about = {"profile": value["profile"], "plan": value["plan"], **target, "base": base["reference"]}
        return Contents(
            name,
            packages={str(one["name"]): str(one["version"]) for one in wheels},
            about={word: str(text) for word, text in {**about, "base digest": base["digest"] or ""}.items() if text},
            files={one["file"]: one["hash"].partition(":")[2] for one in wheels if UNKNOWN not in one["hash"]},
            sources={str(one["component"]): source_words(one) for one in value["sources"]},
            patches={f"{one['component']}: {one['name']}": one["digest"] for one in value["patches"]},
            env={str(word): str(text) for word, text in value["env"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field of the manifest is missing or of a wrong type: {error}") from error


def of_plan(plan: Plan, compatibility: Compatibility) -> Contents:
    """Return the contents of an image of `plan`. Patches are not known: they are read when an image is built."""
    return replace(
        of_manifest(plan.reference, manifest(plan, compatibility)),
        files=_files(plan.lock.packages),
        sizes={layer.name: layer.wheel_bytes for layer in plan.layers if layer.wheel_bytes},
        patches=None,
        layers={layer.name: layer.digest for layer in plan.layers},
    )


def source_words(source: Mapping[str, Any]) -> str:
    """Describe a source of a manifest: `0.9.1 at 796871d7d092, with changes`."""
    at = f"at {source['commit'][:12]}" if source["commit"] else ""
    release = f"release {source['release']}" if source["release"] else ""
    words = " ".join(part for part in (source["version"] or "your own tree", release, at) if part)
    return f"{words}, with changes" if source["dirty"] else words


def _files(packages: Sequence[LockedPackage]) -> dict[str, str]:
    return {package.file: package.sha256 for package in packages if package.complete}
