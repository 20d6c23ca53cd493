"""Every row of the status table."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_server import ran
from sandbox_table import OK, ROWS

from worker.sandbox.program import RunReport
from worker.sandbox.verdict import judge


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
