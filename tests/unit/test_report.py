from __future__ import annotations

from typing import Any

import pytest

from cannery.commands import row_lines
from cannery.verify.lines import CheckPrinter, summary_line


def check(name: str, level: str, status: str, **more: object) -> dict[str, Any]:
    return {"id": name, "level": level, "status": status, "message": f"message of {name}", **more}


REPORT = {
    "result": "failed",
    "counts": {"passed": 2, "failed": 1, "warning": 0, "skipped": 1},
    "checks": [
        check("wheels", "static", "passed"),
        check("env", "static", "failed", details=["A: has 1, wants 2"]),
        check("imports", "import", "passed"),
        check("npu.nodes", "npu", "skipped", message="no NPU"),
    ],
}


def printed(*, every: bool, streamed: bool) -> list[str]:
    lines: list[str] = []
    printer = CheckPrinter(lines.append, every=every)
    for one in REPORT["checks"] if streamed else ():
        printer.check(one)
    printer.report(REPORT, streamed=streamed)
    return lines


@pytest.mark.parametrize("streamed", [True, False])
def test_failures_in_full_and_a_line_a_level(*, streamed: bool) -> None:
    assert printed(every=False, streamed=streamed) == [
        "  ❌ env: message of env",
        "       A: has 1, wants 2",
        "static: 1 passed, 1 failed",
        "import: 1 passed",
        "npu: 1 skipped",
        "failed: 2 passed, 1 failed, 1 skipped; NPU level skipped: no NPU",
    ]


@pytest.mark.parametrize("streamed", [True, False])
def test_every_check_below_its_level(*, streamed: bool) -> None:
    assert printed(every=True, streamed=streamed) == [
        "static:",
        "  ✅ wheels: message of wheels",
        "  ❌ env: message of env",
        "       A: has 1, wants 2",
        "import:",
        "  ✅ imports: message of imports",
        "npu:",
        "  – npu.nodes: no NPU",
        "failed: 2 passed, 1 failed, 1 skipped; NPU level skipped: no NPU",
    ]


def test_a_failure_is_printed_before_the_level_ends() -> None:
    lines: list[str] = []
    CheckPrinter(lines.append).check(REPORT["checks"][1])
    assert lines[0] == "  ❌ env: message of env"


def test_a_training_step_that_was_skipped_is_said() -> None:
    checks = [check("train.data", "train", "skipped"), check("train.step", "train", "skipped", message="no NPU")]
    report = {"result": "passed", "counts": {"passed": 2, "skipped": 2}, "checks": checks}
    assert summary_line(report) == "passed: 2 passed, 2 skipped; training step skipped: no NPU"
    checks[1]["status"] = "passed"
    assert summary_line(report).endswith("2 skipped")
    assert summary_line({**report, "result": "unable"}).startswith(
        "not verified: NPU checks cannot run here (2 passed, "
    )


def test_no_skip_no_word_of_it() -> None:
    report = {"result": "passed", "counts": {"passed": 1, "skipped": 0}, "checks": [check("a", "npu", "passed")]}
    assert summary_line(report) == "passed: 1 passed"


def test_rows_stand_below_each_other_and_empty_ones_are_left_out() -> None:
    assert list(row_lines([("id", "sha256:1"), ("also tagged", ""), ("size", "3 MB")])) == [
        "id           sha256:1",
        "size         3 MB",
    ]
