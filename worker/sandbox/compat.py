"""verl's functions for Sandbox Fusion by their old names and shapes.

They do what the names say, with the faults gone: every passing failure is tried again, the
semaphore is free while waiting, a call-based case that raises does not pass, and after a compile
error nothing more is sent. An outage is still -1 here: there is no other way to say it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from worker.sandbox.cases import CallCase, TextCase, read_cases
from worker.sandbox.errors import BadTests, SandboxProblem
from worker.sandbox.grading import CaseResult, case_result, checked_result, checks_program
from worker.sandbox.limits import SemaphoreLimit
from worker.sandbox.program import CommandResult, Program, RunReport
from worker.sandbox.sync_client import SandboxFusion
from worker.sandbox.verdict import COMPILE_ERROR, SANDBOX_FAULT, judge

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 10
_THREADS = 16


@lru_cache(maxsize=8)
def _client(url: str) -> SandboxFusion:
    return SandboxFusion(url)


def call_sandbox_api(
    sandbox_fusion_url: str,
    code: str,
    stdin: str | None,
    compile_timeout: float,
    run_timeout: float,
    memory_limit_mb: int,
    language: str = "python",
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the server's answer and None, or None and what went wrong."""
    program = Program(
        code=code,
        language=language,
        stdin=stdin,
        compile_timeout_s=compile_timeout,
        run_timeout_s=run_timeout,
        memory_limit_mb=memory_limit_mb,
    )
    report, problem = _call(sandbox_fusion_url, program, None)
    return (None if report is None else dict(report.body or {})), problem


def _process_single_case(
    case_index: int,
    stdin_data: Any,
    expected_output: Any,
    sandbox_fusion_url: str,
    generation: str,
    timeout: float,
    memory_limit_mb: int,
    language: str,
    concurrent_semaphore: Any = None,
    fn_name: str | None = None,
) -> tuple[bool | int, dict[str, Any]]:
    """Run one case; return its result (True, False, -1 to -4) and verl's metadata."""
    stdin = None if stdin_data is None else str(stdin_data)
    case = None
    if fn_name and language == "python":
        tests = {"inputs": [stdin], "outputs": [expected_output], "fn_name": fn_name}
        case = read_cases(tests)[0]
    return _one(
        case_index,
        stdin,
        expected_output,
        sandbox_fusion_url,
        generation,
        timeout,
        memory_limit_mb,
        language,
        concurrent_semaphore,
        case if isinstance(case, CallCase) else None,
    )


def _one(
    index: int,
    stdin: str | None,
    expected: Any,
    url: str,
    code: str,
    timeout: float,
    memory_limit_mb: int,
    language: str,
    semaphore: Any,
    case: CallCase | TextCase | None,
) -> tuple[bool | int, dict[str, Any]]:
    nonce = ""
    if case is None:
        program = Program(
            code=code,
            language=language,
            stdin=stdin,
            compile_timeout_s=timeout,
            run_timeout_s=timeout,
            memory_limit_mb=memory_limit_mb,
        )
    else:
        program, nonce = checks_program(code, [case], timeout, memory_limit_mb)
    report, problem = _call(url, program, semaphore)
    if report is None:
        result = CaseResult(index, SANDBOX_FAULT, "api_error")
    elif case is None:
        result = case_result(index, report, judge(report, expected))
    else:
        result = checked_result(index, report, nonce)
    return result.result, _metadata(result, report, stdin, expected, problem)


def check_correctness(
    sandbox_fusion_url: str,
    in_outs: Mapping[str, Any] | None,
    generation: str,
    timeout: float = DEFAULT_TIMEOUT,
    memory_limit_mb: int = 1024,
    language: str = "python",
    concurrent_semaphore: Any = None,
) -> tuple[list[bool | int], list[dict[str, Any]]]:
    """Run all cases; return one result and one metadata each, in order."""
    if not in_outs or "inputs" not in in_outs or "outputs" not in in_outs:
        return [SANDBOX_FAULT], [{"error": "Invalid input/output data"}]
    inputs, outputs = list(in_outs["inputs"]), list(in_outs["outputs"])
    if not inputs:
        return [], []
    try:
        cases = read_cases(in_outs)
        if len(cases) != len(inputs) or len(inputs) != len(outputs):
            raise BadTests(f"{len(inputs)} inputs, {len(outputs)} outputs, {len(cases)} cases")
    except BadTests as error:
        wrong = {"error": str(error), "case_index": 0}
        return [SANDBOX_FAULT] * len(inputs), [wrong] * len(inputs)

    def run(index: int) -> tuple[bool | int, dict[str, Any]]:
        case = cases[index]
        return _one(
            index,
            None if inputs[index] is None else str(inputs[index]),
            outputs[index],
            sandbox_fusion_url,
            generation,
            timeout,
            memory_limit_mb,
            language,
            concurrent_semaphore,
            case if isinstance(case, CallCase | TextCase) else None,
        )

    done = [run(0)]
    if done[0][0] == COMPILE_ERROR and not isinstance(done[0][0], bool):
        skipped = {**done[0][1], "status": "compile_error_skipped"}
        rest = [(COMPILE_ERROR, {**skipped, "case_index": i}) for i in range(1, len(cases))]
        done += rest
    else:
        with ThreadPoolExecutor(_THREADS) as threads:
            done += threads.map(run, range(1, len(cases)))
    return [result for result, _ in done], [metadata for _, metadata in done]


def _call(url: str, program: Program, semaphore: Any) -> tuple[RunReport | None, str | None]:
    limit = None if semaphore is None else SemaphoreLimit(semaphore)
    try:
        return _client(url).run(program, limit=limit), None
    except SandboxProblem as error:
        logger.warning("sandbox call failed error=%s", error)
        return None, f"API request failed: {error}"


def _metadata(
    result: CaseResult,
    report: RunReport | None,
    stdin: str | None,
    expected: Any,
    problem: str | None,
) -> dict[str, Any]:
    compiled = report.compile_result if report else None
    ran = report.run_result if report else None
    command = ran or CommandResult("")
    return {
        "case_index": result.index,
        "input": stdin,
        "expected_output": None if expected is None else str(expected),
        "api_request_error": problem,
        "api_response": None if report is None else dict(report.body or {}),
        # the server only knows that time ran out; `output_flood` says what it probably was
        "status": "timeout" if result.status == "output_flood" else result.status,
        "stdout": command.stdout if ran else None,
        "stderr": command.stderr if ran else None,
        "exit_code": command.return_code,
        "duration": command.execution_time,
        "compile_duration": compiled.execution_time if compiled else None,
        "compile_stderr": compiled.stderr if compiled else None,
        "api_status": report.status if report else None,
        "compile_status": compiled.status if compiled else None,
        "run_status": ran.status if ran else None,
        "stdout_bytes": command.stdout_bytes,
        "output_flood": command.flooded,
    }
