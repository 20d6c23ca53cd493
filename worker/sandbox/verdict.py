"""The status table: what a report says about the program. One table for server and local runner.

| report | result | status |
| --- | --- | --- |
| `{}` | -1 | unknown_api_state |
| SandboxError | -1 | sandbox_error |
| Failed, compiling Error, or Finished with a code other than 0 | -4 | compile_error |
| Failed, compiling out of time | -4 | compile_timeout |
| Failed, run out of time | -3 | timeout |
| Failed, run stopped for its output | -3 | output_flood |
| Failed, run Error, or Finished with a code other than 0 | -2 | runtime_error |
| Failed, run Finished with 0 | -1 | unknown_failure |
| Failed, neither compiling nor running says why | -1 | unknown_failure_state |
| Success, run Finished, output as expected or none expected | True | success |
| Success, run Finished, another output | False | wrong_answer |
| the same, but the server cut the output and more was expected | -1 | output_cut |
| Success, run not Finished | -1 | unexpected_success_state |
| another status X | -1 | unknown_api_status_X |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worker.sandbox.compare import same_output
from worker.sandbox.program import SERVER_CUT_BYTES, CommandResult, RunReport

#: Results: True passed, False wrong, -1 the sandbox failed, -2 runtime, -3 time, -4 compiling.
Result = bool | int

SANDBOX_FAULT = -1
RUNTIME_ERROR = -2
OUT_OF_TIME = -3
COMPILE_ERROR = -4


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row of the table."""

    result: Result
    status: str

    @property
    def passed(self) -> bool:
        """Whether the case passed; nothing but True does."""
        return self.result is True

    @property
    def judged(self) -> bool:
        """Whether the program was judged; a fault of the sandbox says nothing about it."""
        return isinstance(self.result, bool) or self.result != SANDBOX_FAULT


def judge(report: RunReport, expected: Any = None) -> Verdict:
    """Return the row of the table for a report; `expected` None expects no particular output."""
    if report.status == "Success":
        return _success(report.run_result, expected)
    if report.status == "Failed":
        return _compiling(report.compile_result) or _running(report.run_result)
    if report.status == "SandboxError":
        return Verdict(SANDBOX_FAULT, "sandbox_error")
    if report.status is None:
        return Verdict(SANDBOX_FAULT, "unknown_api_state")
    return Verdict(SANDBOX_FAULT, f"unknown_api_status_{report.status}")


def _success(run: CommandResult | None, expected: Any) -> Verdict:
    if run is None or run.status != "Finished":
        return Verdict(SANDBOX_FAULT, "unexpected_success_state")
    if same_output(run.stdout, expected):
        return Verdict(True, "success")
    # characters of up to four bytes, so that a long expectation is never taken for a short one
    if run.flooded and len(str(expected)) >= SERVER_CUT_BYTES // 4:
        return Verdict(SANDBOX_FAULT, "output_cut")
    return Verdict(False, "wrong_answer")


def _compiling(result: CommandResult | None) -> Verdict | None:
    if result is None:
        return None
    if result.status == "TimeLimitExceeded":
        return Verdict(COMPILE_ERROR, "compile_timeout")
    if result.status == "Error" or (result.status == "Finished" and result.return_code != 0):
        return Verdict(COMPILE_ERROR, "compile_error")
    return None


def _running(result: CommandResult | None) -> Verdict:
    if result is None:
        return Verdict(SANDBOX_FAULT, "unknown_failure_state")
    if result.status == "TimeLimitExceeded":
        return Verdict(OUT_OF_TIME, "output_flood" if result.flooded else "timeout")
    if result.status == "Error" or (result.status == "Finished" and result.return_code != 0):
        return Verdict(RUNTIME_ERROR, "runtime_error")
    if result.status == "Finished":
        return Verdict(SANDBOX_FAULT, "unknown_failure")
    return Verdict(SANDBOX_FAULT, "unknown_failure_state")
