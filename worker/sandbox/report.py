"""What a tool says of a program that was run, the same directly and through the pool."""

from __future__ import annotations

from typing import Any

from worker.sandbox.program import CommandResult, RunReport
from worker.sandbox.verdict import judge

#: Characters of each stream that go back.
LONGEST_STREAM = 200_000


def tool_fields(report: RunReport, timeout_s: float) -> dict[str, Any]:
    """Return result and status of the status table, run_status, stdout, stderr, exit_code,
    duration_s, stdout_bytes, output_flood and timeout_s.

    A program that was not judged has the status sandbox_error and says why in `error`.
    """
    verdict = judge(report)
    command = report.run_result or report.compile_result or CommandResult("")
    fields: dict[str, Any] = {
        "result": verdict.result,
        "status": verdict.status if verdict.judged else "sandbox_error",
        "run_status": command.status,
        "stdout": command.stdout[:LONGEST_STREAM],
        "stderr": command.stderr[:LONGEST_STREAM],
        "exit_code": command.return_code,
        "duration_s": command.execution_time,
        "stdout_bytes": command.stdout_bytes,
        "output_flood": command.flooded,
        "timeout_s": timeout_s,
    }
    if not verdict.judged:
        fields["error"] = f"{verdict.status}: {report.message[:200]}"
    return fields
