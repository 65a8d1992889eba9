"""What `verify --against` prints: what does not fit together, a table of profiles, the differences from the nearest.

As JSON: docs/against-report.schema.json.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from cannery.against.compare import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.against.compare import Comparison
    from cannery.against.image import Image

SCHEMA = 2
# Lines of one kind that are printed; JSON has all.
SHOWN = 15
EXTRAS_SHOWN = 12
HEADER = ("profile", "distance", "packages", "CANN", "Python")
NONE = "none"


def report_value(
    reference: str, image_id: str, image: Image, comparisons: Sequence[Comparison], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """Return the report as JSON values: `comparisons`, the nearest first; `skipped` profiles and the reasons."""
    best, manifest = comparisons[0], image.manifest
    return {
        "schema": SCHEMA,
        "image": {
            "reference": reference,
            "id": image_id,
            "arch": image.config.arch,
            "os": image.os or None,
            "python": image.python or None,
            "cann": image.toolkit or None,
            "distributions": len(image.packages),
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
                "cann": one.cann[1],
                "python": one.python[1],
            }
            for one in comparisons
        ],
        "skipped": [{"name": name, "reason": reason} for name, reason in skipped.items()],
        "differences": [
            {
                "kind": one.kind.name.lower(),
                "matters": one.kind.matters,
                "subject": one.subject,
                "wanted": one.wanted,
                "found": one.found,
                "note": one.note,
            }
            for one in best.differences
        ],
        "extras": list(best.extras),
    }


def report_lines(
    reference: str, image: Image, comparisons: Sequence[Comparison], skipped: Mapping[str, str]
) -> Iterator[str]:
    """Yield the report as lines."""
    best = comparisons[0]
    python = f"Python {image.python or NONE}" + (f" at {image.prefix}" if image.prefix else "")
    parts = (image.config.arch, image.os or "no known OS", python, f"CANN {image.toolkit or NONE}")
    yield f"{reference}: {', '.join(parts)}, {len(image.packages)} packages"
    if image.manifest is not None:
        yield f"made by Cannery as {image.manifest['profile']}, plan {image.manifest['plan']}"
    yield from _differences(best, unfit=True)
    yield from _table([HEADER, *(_row(one) for one in comparisons)])
    for name, reason in skipped.items():
        yield f"{name}: not compared: {reason}"
    yield from _differences(best, unfit=False)
    if best.extras:
        more = len(best.extras) - EXTRAS_SHOWN
        listed = ", ".join(best.extras[:EXTRAS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"not in the profile: {len(best.extras)} packages: {listed}"
    yield verdict(best, is_chosen=len(comparisons) == 1)


def _differences(best: Comparison, *, unfit: bool) -> Iterator[str]:
    wanted = [one for one in best.differences if (one.kind is Kind.UNFIT) is unfit]
    for kind, group in groupby(wanted, key=lambda one: one.kind):
        lines = [str(one) for one in group]
        yield f"{kind}:"
        yield from (f"  {line}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"  … and {len(lines) - SHOWN} more (--json)"


def verdict(best: Comparison, *, is_chosen: bool) -> str:
    """Return the last line: which profile it is, and how it differs."""
    whose = f"profile {best.name}" if is_chosen else f"the nearest profile is {best.name}"
    if best.is_equal:
        return f"{whose}: equal in all that matters"
    count = sum(one.kind.matters for one in best.differences)
    words = [f"{best.packages[0]} of {best.packages[1]} packages are equal"]
    words += [f"CANN is {'equal' if best.cann[0] == best.cann[1] else 'another'}"]
    words += [f"Python is {'equal' if best.python[0] == best.python[1] else 'another'}"]
    return f"{whose}: {', '.join(words)}; differences that matter: {count}"


def _row(one: Comparison) -> tuple[str, ...]:
    packages = f"{one.packages[0]} of {one.packages[1]}"
    return (one.name, f"{one.distance:.2f}", packages, _pair(*one.cann), _pair(*one.python))


def _pair(found: str, wanted: str) -> str:
    return f"{wanted}, equal" if found == wanted else f"{wanted}, not {found or NONE}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
