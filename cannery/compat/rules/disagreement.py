"""Sources of the table that disagree: each is shown, and none is believed silently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import Finding
from cannery.compat.table import here, listed, said
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.catalog.compatibility import Row
    from cannery.compat.subject import Subject


def disagreement(subject: Subject, release: str, rows: Sequence[Row], disputed: Mapping[str, Sequence[Row]]) -> Finding:
    """Return the warning about a release whose `rows` disagree on the keys of `disputed`.

    The values of `disputed` are rows of other releases that are made for this one with what is here of the key.
    """
    sources = subject.table.sources
    voices: dict[str, list[str]] = {}
    for row in rows:
        cells = [said(key, wanted) for key, wanted in row.fits.items() if key in disputed]
        voices.setdefault(str(sources[row.source]), []).extend(cells)
    for key, others in disputed.items():
        for row in others:
            who = f"{row.name} {row.version}: {sources[row.source]}"
            voices.setdefault(who, []).append(said(key, row.fits[key]))
    by_words: dict[str, list[str]] = {}
    for who, cells in voices.items():
        if cells:
            by_words.setdefault(listed(cells), []).append(who)
    has = f"this set has {listed(said(key, here(subject, key) or '') for key in sorted(disputed))}"
    ranks = {sources[row.source].rank for row in rows if disputed.keys() & row.fits.keys()}
    notes = [row.note for row in rows if row.note and disputed.keys() & row.fits.keys()]
    return Finding(
        Severity.WARNING,
        "fit-disagree",
        f"sources disagree about {release}: "
        + "; ".join(f"{words} ({'; '.join(who)})" for words, who in by_words.items()),
        f"{has}; of these sources the first weighs most" if len(ranks) > 1 else has,
        "; ".join(dict.fromkeys(notes)),
    )
