"""What `verify --against` prints: what does not fit together, a table of profiles, the differences from the nearest.

As JSON: docs/against-report.schema.json.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cannery.against.fit import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.against.compare import Comparison

SCHEMA = 3
# Lines of one kind that are printed; JSON has all.
SHOWN = 15
EXTRAS_SHOWN = 12
HEADER = ("profile", "packages", "CANN", "Python")
NONE = "none"


def report_value(reference: str, comparisons: Sequence[Comparison], skipped: Mapping[str, str]) -> dict[str, Any]:
    """Return the report as JSON values: `comparisons`, the nearest first; `skipped` profiles and the reasons."""
    best, image = comparisons[0], comparisons[0].image
    return {
        "schema": SCHEMA,
        "image": {
            "reference": reference,
            "id": image.config.id,
            "arch": image.config.arch,
            "os": image.os or None,
            "python": image.python or None,
            "cann": image.toolkit or None,
            "distributions": len(image.packages),
            "made_by": {key: image.manifest[key] for key in ("profile", "plan")} if image.manifest else None,
        },
        "profile": best.expected.name,
        "equal": best.is_equal,
        "profiles": [
            {
                "name": one.expected.name,
                "target": str(one.expected.recipe.target),
                "packages": {"equal": len(one.equal), "all": len(one.expected.packages)},
                "cann": one.expected.cann,
                "python": one.expected.recipe.target.python,
            }
            for one in comparisons
        ],
        "skipped": [{"name": name, "reason": reason} for name, reason in skipped.items()],
        "differences": [
            {**asdict(one), "kind": one.kind.name.lower(), "matters": one.kind.matters} for one in best.differences
        ],
        "extras": list(best.extras),
    }


def report_lines(reference: str, comparisons: Sequence[Comparison], skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield the report as lines."""
    best, image = comparisons[0], comparisons[0].image
    python = f"Python {image.python or NONE}" + (f" at {image.prefix}" if image.prefix else "")
    parts = (image.config.arch, image.os or "no known OS", python, f"CANN {image.toolkit or NONE}")
    yield f"{reference}: {', '.join(parts)}, {len(image.packages)} packages"
    if image.manifest is not None:
        yield f"made by Cannery as {image.manifest['profile']}, plan {image.manifest['plan']}"
    yield from _differences(best, unfit=True)
    yield from _table([HEADER, *map(_row, comparisons)])
    for name, reason in skipped.items():
        yield f"{name}: not compared: {reason}"
    yield from _differences(best, unfit=False)
    if best.extras:
        more = len(best.extras) - EXTRAS_SHOWN
        listed = ", ".join(best.extras[:EXTRAS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"not in the profile: {len(best.extras)} packages: {listed}"
    whose = f"profile {best.expected.name}" if len(comparisons) == 1 else f"the nearest profile is {best.expected.name}"
    count = sum(one.kind.matters for one in best.differences)
    yield f"{whose}: " + (f"differences that matter: {count}" if count else "equal in all that matters")


def _differences(best: Comparison, *, unfit: bool) -> Iterator[str]:
    wanted = [one for one in best.differences if (one.kind is Kind.UNFIT) is unfit]
    for kind, group in groupby(wanted, key=lambda one: one.kind):
        lines = [str(one) for one in group]
        yield f"{kind}:"
        yield from (f"  {line}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"  … and {len(lines) - SHOWN} more (--json)"


def _row(one: Comparison) -> tuple[str, ...]:
    target, image = one.expected.recipe.target, one.image
    packages = f"{len(one.equal)} of {len(one.expected.packages)}"
    return (
        one.expected.name,
        packages,
        _pair(image.toolkit, one.expected.cann),
        _pair(image.python, target.python),
    )


def _pair(found: str, wanted: str) -> str:
    return f"{wanted}, equal" if found == wanted else f"{wanted}, not {found or NONE}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
