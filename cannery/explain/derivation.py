"""Read why uv finds no set of versions: the facts of its derivation, without what it concludes from them.

uv writes sentences of one kind: `Because A depends on B and there is no version of C, we can conclude that …`. What
stands between `because` and `we can conclude` are facts of indexes and requirements; the rest follows from them. Ranges
that have gaps are lists of lines (`one of:`, `all of:`). tests/unit/data/uv_reasons holds texts of a real uv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.lock.lock import PROFILE_VIA
from cannery.lock.uv_input import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Who asks when nobody does: a constraint only bounds what others ask for.
BOUND = ""


class FactKind(StrEnum):
    """What uv takes for given."""

    ASKS = "asks"
    LACKS = "there is no version in this range"
    ONLY = "no other versions are there"
    UNUSABLE = "these versions cannot be used"
    UNKNOWN = "no index has the package"
    HIDDEN = "the date bound hides this version"


@dataclass(frozen=True)
class Fact:
    """One fact about the package `name`, for the versions in any of the ranges `versions`; without one, for all.

    Of `ASKS`, `versions` are what is asked for; `by` asks, in its versions `by_versions` (`PROFILE_VIA`: the profile;
    `BOUND`: nobody). `why` is uv's reason of `UNUSABLE`. Of `HIDDEN`, `versions` is the newest that is asked for
    and hidden, `why` the day of its upload, `by` the setting that hides it and `by_versions` that setting's day.
    """

    kind: FactKind
    name: str
    versions: tuple[str, ...] = ()
    by: str = BOUND
    by_versions: tuple[str, ...] = ()
    why: str = ""


SENTENCE = re.compile(r"\b(?:Because|And because) (?P<facts>.+?),? we can conclude that ")
MARKER = re.compile(r"\{[^}]*\}")
# Drawing of uv's terminal output, and the words that head an error.
FRAME = re.compile(r"^\s*(error:|cause:|×|╰─▶|│)\s*")
RANGE = r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[^\]]*\])?(?P<range>[=<>!~]\S*)?"
PACKAGE = re.compile(rf"(?:all versions of )?{RANGE}")
AND = re.compile(r",? and (?:because )?")
ASKS = re.compile(r"(?P<by>.+?) depends? on (?P<what>\S+)")
REQUIRE = re.compile(r"you require (?P<what>\S+)")
LACKS = re.compile(r"there (?:is|are) no versions? of (?P<what>\S+)")
LISTED = re.compile(r"only the following versions of \S+ are available: (?P<what>\S+)")
ONLY = re.compile(r"only (?P<what>\S+) (?:is|are) available")
UNKNOWN = re.compile(r"(?P<what>\S+) was not found in .+")
# That two packages are incompatible is what uv concludes, not a fact.
UNUSABLE = re.compile(
    r"(?P<what>(?:all versions of )?\S+) (?P<why>(?!are incompatible)(?:requires?|has|have|was|were|is|are|needs?) .+)"
)
HIDDEN = re.compile(
    r"hint: `(?P<name>[^`]+)` was filtered by `(?P<by>exclude-newer(?:-package)?)` to only include packages uploaded"
    r" before (?P<bound>\d{4}-\d\d-\d\d)\S* "
    r"(?:The requested version, |The latest version satisfying the requirement is )"
    r"v(?P<version>[^,\s]+), (?:was )?published at (?P<day>\d{4}-\d\d-\d\d)"
)
DERIVED = ("we know from ", "the requested Python version")


def parse_reasons(stderr: str) -> tuple[Fact, ...]:
    """Return the facts of uv's explanation in its order, each once; empty when it holds none that is understood."""
    text = _flat(stderr)
    facts = [fact for match in SENTENCE.finditer(text) for fact in _facts(match["facts"])]
    return tuple(dict.fromkeys((*facts, *_hidden(stderr))))


def _hidden(stderr: str) -> Iterator[Fact]:
    for match in HIDDEN.finditer(re.sub(r"\s+", " ", stderr)):
        versions, bound = (f"=={match['version']}",), (match["bound"],)
        setting = match["by"].replace("-", "_").replace("package", "packages")
        yield Fact(FactKind.HIDDEN, match["name"], versions, setting, bound, match["day"])


def _flat(stderr: str) -> str:
    """Return the explanation as one line; a list of ranges is one word there, `a<1|a>2`."""
    words: list[str] = []
    in_list = False
    for raw in MARKER.sub("", stderr).splitlines():
        line = FRAME.sub("", raw).strip()
        if line.startswith("hint:"):
            break
        if in_list and line and " " not in line:
            words[-1] += line if words[-1] == "" else f"|{line}"
            continue
        in_list = line.endswith(("one of:", "all of:", "available:"))
        if in_list:
            # The list takes the place of the words that announce it; `available:` stays, since `only` needs it.
            words += [re.sub(r"(one|all) of:$", "", line).rstrip(), ""]
        elif line:
            words.append(line)
    return re.sub(r"\s+", " ", " ".join(words))


def _facts(text: str) -> Iterator[Fact]:
    before: Fact | None = None
    # What only extends a sentence that is left out is left out too.
    derived = False
    for part in _parts(text):
        found = _package(part)
        if found is None:
            derived = part.startswith(DERIVED)
            before = None if derived else _fact(part)
        elif not derived:
            before = _more(before, *found)
        else:
            before = None
        if before is not None:
            yield before


def _parts(text: str) -> Iterator[str]:
    """Cut at `and`; a piece that is neither a package nor a fact belongs to the one before it."""
    kept = ""
    for piece in AND.split(text):
        if kept and not _starts(piece):
            kept += f" and {piece}"
            continue
        if kept:
            yield kept
        kept = piece.strip()
    if kept:
        yield kept


def _starts(piece: str) -> bool:
    kinds = (ASKS, REQUIRE, LACKS, LISTED, ONLY, UNKNOWN, UNUSABLE)
    return piece.startswith(DERIVED) or bool(_package(piece)) or any(kind.fullmatch(piece) for kind in kinds)


def _more(before: Fact | None, name: str, versions: tuple[str, ...]) -> Fact:
    """A package alone: one more that the same one asks for; a bound when it is the same package again."""
    is_bound = before is None or before.kind is not FactKind.ASKS or (before.by != PROFILE_VIA and before.name == name)
    if before is None or is_bound:
        return Fact(FactKind.ASKS, name, versions)
    return Fact(FactKind.ASKS, name, versions, before.by, before.by_versions)


def _fact(part: str) -> Fact | None:
    """Read one fact; None for a sentence of no known kind."""
    for pattern, kind in (
        (LACKS, FactKind.LACKS),
        (LISTED, FactKind.ONLY),
        (ONLY, FactKind.ONLY),
        (UNKNOWN, FactKind.UNKNOWN),
    ):
        match = pattern.fullmatch(part)
        found = _package(match["what"]) if match else None
        if found:
            return Fact(kind, *found)
    match = REQUIRE.fullmatch(part)
    wanted = _package(match["what"]) if match else None
    if wanted:
        return Fact(FactKind.ASKS, *wanted, PROFILE_VIA)
    return _asks(part) or _unusable(part)


def _asks(part: str) -> Fact | None:
    match = ASKS.fullmatch(part)
    by = _package(match["by"]) if match else None
    wanted = _package(match["what"]) if match else None
    if not by or not wanted:
        return None
    if wanted[0] == "python":
        return Fact(FactKind.UNUSABLE, *by, why=f"requires Python {' or '.join(wanted[1])}")
    if by[0] == PROJECT:
        return Fact(FactKind.ASKS, *wanted, PROFILE_VIA)
    return Fact(FactKind.ASKS, *wanted, *by)


def _unusable(part: str) -> Fact | None:
    match = UNUSABLE.fullmatch(part)
    found = _package(match["what"]) if match else None
    return Fact(FactKind.UNUSABLE, *found, why=match["why"]) if match and found else None


def _package(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return (name, ranges) of `a==1`, `all versions of a` or `a<1|a>2`; None for anything else."""
    matches = [PACKAGE.fullmatch(piece) for piece in text.split("|")]
    found = [match for match in matches if match]
    if len(found) != len(matches):
        return None
    return found[0]["name"].lower(), _ranges(match["range"] for match in found)


def _ranges(texts: Iterable[str | None]) -> tuple[str, ...]:
    found = [text for text in texts if text]
    return tuple(dict.fromkeys(found))
