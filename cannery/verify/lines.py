"""Print a verify report (docs/verify-report.schema.json): failures and warnings in full, and a line for each level."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Check = dict[str, Any]
SIGNS = {"passed": "✅", "failed": "❌", "warning": "⚠️", "skipped": "–"}
SHOWN = ("failed", "warning")


class CheckPrinter:
    """Prints failures and warnings as checks end, and the counts of each level.

    With `every`, each check is printed below the name of its level.
    """

    def __init__(self, write: Callable[[str], None], *, every: bool = False) -> None:
        self.write, self.every = write, every
        self.level, self.counts = "", Counter[str]()

    def check(self, check: Check) -> None:
        """Count and print one check that has ended."""
        if check["level"] != self.level:
            self.end_level()
            self.level = check["level"]
            if self.every:
                self.write(f"{self.level}:")
        self.counts[check["status"]] += 1
        if self.every or check["status"] in SHOWN:
            self.write(f"  {SIGNS[check['status']]} {check['id']}: {check['message']}")
            for detail in check.get("details", ()):
                self.write(f"       {detail}")

    def end_level(self) -> None:
        """Print the counts of the level that ended."""
        counts = ", ".join(f"{self.counts[status]} {status}" for status in SIGNS if self.counts[status])
        if counts and not self.every:
            self.write(f"{self.level}: {counts}")
        self.counts.clear()

    def report(self, report: Mapping[str, Any], *, streamed: bool) -> None:
        """Print a whole report; if its checks were streamed, only the last lines."""
        for check in () if streamed else report["checks"]:
            self.check(check)
        self.end_level()
        self.write(summary_line(report))


def summary_line(report: Mapping[str, Any]) -> str:
    """Return the result with its counts, and the reason if the NPU level or the training step was skipped."""
    counts = ", ".join(f"{count} {status}" for status, count in report["counts"].items() if count)
    reasons = sorted({c["message"] for c in report["checks"] if c["level"] == "npu" and c["status"] == "skipped"})
    steps = [c["message"] for c in report["checks"] if c["id"] == "train.step" and c["status"] == "skipped"]
    unproved = f"; NPU level skipped: {'; '.join(reasons)}" if reasons else ""
    if report["result"] == "unable":
        return f"not verified: NPU checks cannot run here ({counts}){unproved}"
    return f"{report['result']}: {counts}{unproved}" + "".join(f"; training step skipped: {why}" for why in steps)
