"""Every row of the status table."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_server import ran

from worker.sandbox.program import SERVER_CUT_BYTES, RunReport
from worker.sandbox.verdict import judge

OK = {"status": "Finished", "return_code": 0}
ROWS: list[tuple[str, dict[str, Any], Any, bool | int, str]] = [
    ("empty", {}, None, -1, "unknown_api_state"),
    ("sandbox", ran("SandboxError", "Error", None, message="x"), "4", -1, "sandbox_error"),
    (
        "compile error",
        ran("Failed", None, compiled={"status": "Error"}),
        "4",
        -4,
        "compile_error",
    ),
    (
        "compile code",
        ran("Failed", None, compiled={"status": "Finished", "return_code": 1}),
        "4",
        -4,
        "compile_error",
    ),
    (
        "compile time",
        ran("Failed", None, compiled={"status": "TimeLimitExceeded"}),
        "4",
        -4,
        "compile_timeout",
    ),
    ("time", ran("Failed", "TimeLimitExceeded", None, "part"), "part", -3, "timeout"),
    ("flood", ran("Failed", "TimeLimitExceeded", None, "x" * 70_000), "4", -3, "output_flood"),
    ("run error", ran("Failed", "Error", None), "4", -2, "runtime_error"),
    ("run code", ran("Failed", "Finished", 1, "4"), "4", -2, "runtime_error"),
    ("run code after compiling", ran("Failed", code=3, compiled=OK), "4", -2, "runtime_error"),
    ("failed but well", ran("Failed", "Finished", 0), "4", -1, "unknown_failure"),
    ("failed for nothing", ran("Failed", None), "4", -1, "unknown_failure_state"),
    ("right", ran(stdout="4\n"), 4, True, "success"),
    ("right after compiling", ran(stdout="4\n", compiled=OK), "4", True, "success"),
    ("nothing expected", ran(stdout="whatever"), None, True, "success"),
    ("silent", ran(stdout=""), "", True, "success"),
    ("null output", ran(stdout=None, stderr=None), "", True, "success"),
    ("wrong", ran(stdout="5"), "4", False, "wrong_answer"),
    ("success without an end", ran(run="TimeLimitExceeded"), "", -1, "unexpected_success_state"),
    ("success without a run", ran(run=None), "", -1, "unexpected_success_state"),
    ("another word", ran("Queued"), "4", -1, "unknown_api_status_Queued"),
    (
        "cut by the server",
        ran(stdout="x" * SERVER_CUT_BYTES),
        "x" * 400_000,
        -1,
        "output_cut",
    ),
    ("cut, but wrong", ran(stdout="x" * SERVER_CUT_BYTES), "4", False, "wrong_answer"),
]


@pytest.mark.parametrize(
    ("body", "expected", "result", "status"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_the_table_holds(body: Any, expected: Any, result: bool | int, status: str) -> None:
    verdict = judge(RunReport.from_body(body), expected)
    assert (verdict.result, type(verdict.result)) == (result, type(result))
    assert verdict.status == status
    assert verdict.passed is (result is True)
    assert verdict.judged is (isinstance(result, bool) or result != -1)


def test_a_report_survives_the_shape_it_came_in() -> None:
    body = ran(stdout="4", compiled={**OK, "execution_time": 0.1, "stdout": "", "stderr": ""})
    body["files"] = {"a.txt": "YWI="}
    report = RunReport.from_body(body)
    assert report.to_body() == body
    assert report.files == {"a.txt": b"ab"}


@pytest.mark.parametrize(
    "body", [{"status": 7, "run_result": []}, {"run_result": 3}, {"status": "Success", "files": 1}]
)
def test_strange_bodies_are_a_fault_of_the_sandbox(body: dict[str, Any]) -> None:
    assert not judge(RunReport.from_body(body)).judged
