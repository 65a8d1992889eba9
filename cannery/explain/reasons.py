"""What is read out of uv's text when no set of versions works: who depends on what, and whose releases are in doubt.

uv writes `Because A depends on B and there is no version of C, we can conclude that …`. What it concludes, and what it
knows from an earlier step (`we know from (1) that …`), is left out: it follows from the rest. Whether releases can
really not be used is asked of their index. tests/unit/data/uv_reasons has texts of a real uv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from cannery.lock.uv_input import PROJECT

NAME = r"(?!and\b|of\b)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[^\]]*\])?"
RANGE = r"[=<>!~]\S*"
FRAME = re.compile(r"^\s*(error:|cause:|×|╰─▶|│)\s*", re.MULTILINE)
FACTS = re.compile(r"\b[Bb]ecause (?P<facts>.*?)(?:,? ?\bwe can conclude that |\bwe know from |$)")
ASKS = re.compile(
    rf"(?P<by>{NAME})(?:{RANGE})? depends? on (?:one of: |all of: )?"
    rf"(?P<name>{NAME})(?P<wanted>{RANGE})?(?P<more>(?: {NAME}{RANGE})*)"
)
DOUBT = re.compile(
    rf"(?:no versions? of|only the following versions of|only) ({NAME})"
    rf"|({NAME})(?:{RANGE})? (?:requires?|has|have|was|were|needs?|depends? on Python\b)"
)
PYTHON = "python"


@dataclass(frozen=True)
class Ask:
    """The distribution `by` depends on `name`, in any of the ranges `wanted` (none: of any version)."""

    by: str
    name: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class Reasons:
    """What uv names: dependencies, the distributions whose releases are in doubt, and all that it names, in order."""

    asks: tuple[Ask, ...]
    doubts: tuple[str, ...]
    names: tuple[str, ...]


def read_reasons(stderr: str) -> Reasons:
    """Return what uv's text has; nothing where it is of another form."""
    text = re.sub(r"\{[^}]*\}", "", FRAME.sub("", stderr).partition("\nhint:")[0])
    facts = [match["facts"] for match in FACTS.finditer(" ".join(text.split()))]
    asks = [ask for part in facts for ask in _asks(part)]
    doubts = [_name(match[1] or match[2]) for part in facts for match in DOUBT.finditer(part)]
    named = [_name(word) for part in facts for word in re.findall(rf"({NAME})(?={RANGE}| |$)", part)]
    return Reasons(
        asks=tuple(dict.fromkeys(asks)),
        doubts=tuple(dict.fromkeys(name for name in doubts if name not in {PYTHON, PROJECT})),
        names=tuple(dict.fromkeys([*(ask.name for ask in asks), *named])),
    )


def _name(text: str) -> str:
    """Return a normalised name, without extras: `ray[default]` is ray."""
    return canonicalize_name(text.partition("[")[0])


def _asks(text: str) -> list[Ask]:
    found = []
    for match in ASKS.finditer(text):
        by, name = _name(match["by"]), _name(match["name"])
        ranges = [match["wanted"] or "", *re.findall(rf" {NAME}({RANGE})", match["more"])]
        if by != PROJECT and name != PYTHON:
            found.append(Ask(by, name, tuple(text for text in ranges if text)))
    return found
