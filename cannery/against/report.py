"""What `verify --against` prints: a table of profiles, then the differences of the nearest.

As JSON: docs/against-report.schema.json.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.against.compare import Comparison
    from cannery.against.difference import Difference
    from cannery.against.facts import Inventory

SCHEMA = 1
# Lines of one kind that are printed; JSON has all.
SHOWN = 15
EXTRAS_SHOWN = 12
HEADER = ("profile", "distance", "packages", "sources", "CANN", "Python")
NONE = "none"


def report_value(
    image: str, image_id: str, inventory: Inventory, comparisons: Sequence[Comparison], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """Return the report as JSON values; `comparisons` are the nearest first, `skipped` profiles and why they are."""
    best = comparisons[0]
    manifest = inventory.manifest
    return {
        "schema": SCHEMA,
        "image": {
            "reference": image,
            "id": image_id,
            "arch": inventory.seen.arch,
            "os": inventory.os or None,
            "python": inventory.python.version or None,
            "cann": inventory.toolkit or None,
            "distributions": len(inventory.distributions),
            "made_by": {"profile": manifest["profile"], "plan": manifest["plan"]} if manifest else None,
        },
        "profile": best.name,
        "equal": best.is_equal,
        "profiles": [
            {
                "name": one.name,
                "target": str(one.expected.recipe.target),
                "distance": round(one.distance, 4),
                "packages": {"equal": one.packages[0], "all": one.packages[1]},
                "sources": {"equal": one.sources[0], "all": one.sources[1]},
                "cann": one.cann[1],
                "python": one.python[1],
            }
            for one in comparisons
        ],
        "skipped": [{"name": name, "reason": reason} for name, reason in skipped.items()],
        "differences": [_difference(one) for one in best.differences],
        "extras": list(best.extras),
    }


def _difference(one: Difference) -> dict[str, Any]:
    return {
        "kind": one.kind.name.lower(),
        "matters": one.kind.matters,
        "subject": one.subject,
        "wanted": one.wanted,
        "found": one.found,
        "note": one.note,
    }


def report_lines(
    image: str, inventory: Inventory, comparisons: Sequence[Comparison], skipped: Mapping[str, str]
) -> Iterator[str]:
    """Yield the report for a person."""
    best = comparisons[0]
    yield _image_line(image, inventory)
    if inventory.manifest is not None:
        yield f"made by Cannery as {inventory.manifest['profile']}, plan {inventory.manifest['plan']}"
    yield from _table([HEADER, *(_row(one) for one in comparisons)])
    for name, reason in skipped.items():
        yield f"{name}: not compared: {reason}"
    for kind, group in groupby(best.differences, key=lambda one: one.kind):
        lines = [str(one) for one in group]
        yield f"{kind}:"
        yield from (f"  {line}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"  … and {len(lines) - SHOWN} more (--json)"
    if best.extras:
        more = len(best.extras) - EXTRAS_SHOWN
        shown = ", ".join(best.extras[:EXTRAS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"beside the profile: {len(best.extras)} packages: {shown}"
    yield verdict(best, is_chosen=len(comparisons) == 1)


def verdict(best: Comparison, *, is_chosen: bool) -> str:
    """Return the last line: which profile it is, and how it differs."""
    whose = f"profile {best.name}" if is_chosen else f"the nearest profile is {best.name}"
    if best.is_equal:
        return f"{whose}: equal in all that matters"
    count = sum(one.kind.matters for one in best.differences)
    packages, sources = best.packages, best.sources
    words = [f"{packages[0]} of {packages[1]} packages are equal"]
    words += [f"{sources[0]} of {sources[1]} sources"] if sources[1] else []
    words += [f"CANN is {'equal' if best.cann[0] == best.cann[1] else 'another'}"]
    words += [f"Python is {'equal' if best.python[0] == best.python[1] else 'another'}"]
    return f"{whose}: {', '.join(words)}; differences that matter: {count}"


def _image_line(image: str, inventory: Inventory) -> str:
    parts = (
        inventory.seen.arch,
        inventory.os or "no known OS",
        f"Python {inventory.python.version or NONE}" + (f" at {inventory.python.prefix}" if inventory.pythons else ""),
        f"CANN {inventory.toolkit or NONE}",
        f"{len(inventory.distributions)} distributions",
    )
    return f"{image}: {', '.join(parts)}"


def _row(one: Comparison) -> tuple[str, ...]:
    return (
        one.name,
        f"{one.distance:.2f}",
        f"{one.packages[0]} of {one.packages[1]}",
        f"{one.sources[0]} of {one.sources[1]}" if one.sources[1] else NONE,
        _pair(*one.cann),
        _pair(*one.python),
    )


def _pair(found: str, wanted: str) -> str:
    return f"{wanted}, equal" if found == wanted else f"{wanted}, not {found or NONE}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
