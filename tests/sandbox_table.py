"""The status table as rows: a name, what the server says, what was expected, result and status."""

from __future__ import annotations

from typing import Any

from sandbox_server import ran

from worker.sandbox.program import SERVER_CUT_BYTES

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
