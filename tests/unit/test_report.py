from __future__ import annotations

from typing import Any

from cannery.commands.table import report_lines, row_lines, summary_line


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


def test_a_line_a_check_by_level_with_details() -> None:
    assert list(report_lines(REPORT)) == [
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


def test_only_what_is_wanted() -> None:
    assert list(report_lines(REPORT, only=("failed", "warning")))[:2] == ["static:", "  ❌ env: message of env"]


def test_a_training_step_that_was_skipped_is_said() -> None:
    checks = [check("train.data", "train", "skipped"), check("train.step", "train", "skipped", message="no NPU")]
    report = {"result": "passed", "counts": {"passed": 2, "skipped": 2}, "checks": checks}
    assert summary_line(report) == "passed: 2 passed, 2 skipped; training step skipped: no NPU"
    checks[1]["status"] = "passed"
    assert summary_line(report).endswith("2 skipped")


def test_no_skip_no_word_of_it() -> None:
    report = {"result": "passed", "counts": {"passed": 1, "skipped": 0}, "checks": [check("a", "npu", "passed")]}
    assert summary_line(report) == "passed: 1 passed"


def test_rows_stand_below_each_other_and_empty_ones_are_left_out() -> None:
    assert list(row_lines([("id", "sha256:1"), ("also tagged", ""), ("size", "3 MB")])) == [
        "id           sha256:1",
        "size         3 MB",
    ]
