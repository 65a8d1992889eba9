"""What a check found, and the report of a run: as text, and as JSON (docs/verify-report.schema.json)."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifying.image import Options


@dataclass(frozen=True)
class Outcome:
    """What one check found. `unable`: a failure of the machine at hand, not of the image (exit 3 instead of 1)."""

    status: str
    message: str
    details: tuple[str, ...] = ()
    unable: bool = False
    id: str = ""
    level: str = ""


def passed(message: str) -> Outcome:
    """The fact holds."""
    return Outcome("passed", message)


def failed(message: str, details: Iterable[str] = (), *, unable: bool = False) -> Outcome:
    """The fact does not hold."""
    return Outcome("failed", message, tuple(details), unable)


def warning(message: str) -> Outcome:
    """Worth knowing; does not change the exit code."""
    return Outcome("warning", message)


def skipped(reason: str, details: Iterable[str] = ()) -> Outcome:
    """Not looked at, and why."""
    return Outcome("skipped", reason, tuple(details))


def judged(faults: Sequence[str], good: str) -> Outcome:
    """Passed when there is no fault; one fault is the message itself, more are the details."""
    if not faults:
        return passed(good)
    return failed(faults[0]) if len(faults) == 1 else failed(f"{len(faults)} faults", faults)


SIGNS = {"passed": "✅", "failed": "❌", "warning": "⚠️ ", "skipped": "⏭️ "}
RESULTS = {
    "passed": "✅ passed",
    "failed": "❌ failed",
    "unable": "❌ unable: this machine cannot run what was asked",
}
STEP = "train.step"
DETAILS_SHOWN = 12  # lines of detail under a check; JSON has all


def result_of(outcomes: Sequence[Outcome], options: Options) -> str:
    """passed, failed or unable, over all checks."""
    if any(item.status == "failed" and not item.unable for item in outcomes):
        return "failed"
    # In the level train, only the step needs an NPU and is skipped without one.
    proofs = [item for item in outcomes if item.level == "npu" or item.id == STEP]
    lacking = options.require_npu and any(item.status == "skipped" for item in proofs)
    return "unable" if lacking or any(item.unable for item in outcomes) else "passed"


def counts_of(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many checks ended in each status."""
    found = Counter(item.status for item in outcomes)
    return {status: found[status] for status in SIGNS}


def lines_of(item: Outcome) -> Iterator[str]:
    """A check as text."""
    yield f"{SIGNS[item.status]} {item.id}: {'skipped: ' if item.status == 'skipped' else ''}{item.message}"
    if item.status != "passed":
        yield from (f"     {line}" for line in item.details[:DETAILS_SHOWN])
        if len(item.details) > DETAILS_SHOWN:
            yield f"     … {len(item.details) - DETAILS_SHOWN} more (--json has all)"


def values_of(item: Outcome) -> dict[str, Any]:
    """A check as JSON values."""
    return {key: getattr(item, key) for key in ("id", "level", "status", "message", "details")}


def summary(outcomes: Sequence[Outcome], result: str) -> str:
    """The last line. It reports an NPU that was not tested as such."""
    counts = {status: count for status, count in counts_of(outcomes).items() if count}
    parts = [f"{n} {status}{'s' if status == 'warning' and n != 1 else ''}" for status, n in counts.items()]
    npu = [item for item in outcomes if item.level == "npu"]
    reasons = dict.fromkeys(item.message for item in npu if item.status == "skipped")
    why = ", ".join(reasons) if npu else "level not run"
    unproved = f"; the NPU was not tested ({why})" if why else ""
    steps = [item.message for item in outcomes if item.id == STEP and item.status == "skipped"]
    unproved += "".join(f"; no training step ran ({why})" for why in steps)
    return f"{RESULTS[result]}: {', '.join(parts) or 'no check ran'}{unproved}"


def document(manifest: Mapping[str, Any], outcomes: Sequence[Outcome], result: str) -> str:
    """The report as one JSON text; `manifest` is empty when it could not be read."""
    value = {
        "schema": 1,
        "result": result,
        "profile": manifest.get("profile"),
        "plan": manifest.get("plan"),
        "base": manifest["base"]["kind"] if manifest else None,
        "checks": [values_of(item) for item in outcomes],
        "counts": counts_of(outcomes),
    }
    return json.dumps(value, indent=1)  # ASCII: valid whatever the encoding of the output is
