"""Results of a command as lines to read: rows, and a verify report (docs/verify-report.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SIGNS = {"passed": "✅", "failed": "❌", "warning": "⚠️", "skipped": "–"}


def row_lines(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line a row, the values below each other; a row without a value is left out."""
    every = tuple(rows)
    width = max(len(name) for name, _ in every)
    yield from (f"{name:<{width}}  {value}" for name, value in every if value)


def report_lines(report: Mapping[str, Any], only: Sequence[str] = tuple(SIGNS)) -> Iterator[str]:
    """Yield a line a check, with its details indented below; `only` names the statuses wanted."""
    level = None
    for check in report["checks"]:
        if check["status"] not in only:
            continue
        if check["level"] != level:
            level = check["level"]
            yield f"{level}:"
        yield f"  {SIGNS[check['status']]} {check['id']}: {check['message']}"
        yield from (f"       {detail}" for detail in check.get("details", ()))
    yield summary_line(report)


def summary_line(report: Mapping[str, Any]) -> str:
    """Return the verdict with its counts, and why an NPU level or a training step was skipped."""
    counts = ", ".join(f"{count} {status}" for status, count in report["counts"].items() if count)
    reasons = sorted({c["message"] for c in report["checks"] if c["level"] == "npu" and c["status"] == "skipped"})
    steps = [c["message"] for c in report["checks"] if c["id"] == "train.step" and c["status"] == "skipped"]
    unproved = f"; NPU level skipped: {'; '.join(reasons)}" if reasons else ""
    return f"{report['result']}: {counts}{unproved}" + "".join(f"; training step skipped: {why}" for why in steps)
