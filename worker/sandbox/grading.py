"""Running a program against its cases: one result a case, in order, whatever the backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from worker.sandbox.cases import CallCase, Case, StdinCase, TextCase
from worker.sandbox.errors import BadTests
from worker.sandbox.harness.bundle import CaseReport, harness_program, read_reports
from worker.sandbox.limits import Limit, Waiting
from worker.sandbox.program import COMPILED, CommandResult, Program, RunReport
from worker.sandbox.verdict import (
    COMPILE_ERROR,
    OUT_OF_TIME,
    RUNTIME_ERROR,
    SANDBOX_FAULT,
    Verdict,
    judge,
)

#: Checks a harness program runs at most; more are split, so that one run stays short.
CHECKS_A_RUN = 16
#: Runs of one row at the same time; the limit may allow fewer, other rows want places too.
RUNS_AT_ONCE = 8

_CHECKED = {
    "passed": Verdict(True, "success"),
    "failed": Verdict(False, "wrong_answer"),
    "error": Verdict(RUNTIME_ERROR, "runtime_error"),
    "exited": Verdict(RUNTIME_ERROR, "early_exit"),
    "timeout": Verdict(OUT_OF_TIME, "timeout"),
}


class Backend(Protocol):
    """What runs programs: a server's client or the local runner."""

    async def run(
        self, program: Program, *, limit: Limit | None = None, waiting: Waiting | None = None
    ) -> RunReport:
        """Run one program."""

    async def aclose(self) -> None:
        """Let go of connections."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of one case; times in seconds. `result` and `status` are the table's row."""

    index: int
    result: bool | int
    status: str
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    duration_s: float | None = None
    stdout_bytes: int = 0
    output_flood: bool = False

    @property
    def passed(self) -> bool:
        """Whether the case passed."""
        return self.result is True


@dataclass(frozen=True, slots=True)
class Grading:
    """How a program is run: `timeout_s` is for compiling, and for each case."""

    language: str = "python"
    timeout_s: float = 10.0
    memory_limit_mb: int = 1024

    def program(self, code: str, stdin: str | None) -> Program:
        """The program as it is, with an input."""
        return Program(
            code=code,
            language=self.language,
            stdin=stdin,
            compile_timeout_s=self.timeout_s,
            run_timeout_s=self.timeout_s,
            memory_limit_mb=self.memory_limit_mb,
        )


async def grade(
    code: str,
    cases: Sequence[Case],
    backend: Backend,
    *,
    how: Grading | None = None,
    limit: Limit | None = None,
    waiting: Waiting | None = None,
) -> list[CaseResult]:
    """Run every case; after a compile error the rest is not sent.

    Raises what the backend raises, and BadTests for checks that cannot judge a program.
    """
    how = how or Grading()
    gate = asyncio.Semaphore(RUNS_AT_ONCE)

    async def run(program: Program) -> RunReport:
        async with gate:
            return await backend.run(program, limit=limit, waiting=waiting)

    plain = [(place, case) for place, case in enumerate(cases) if isinstance(case, StdinCase)]
    checked = [(p, case) for p, case in enumerate(cases) if isinstance(case, CallCase | TextCase)]
    if checked and how.language != "python":
        raise BadTests(f"ground_truth: checks and fn_name need python (language {how.language!r})")
    found = await _grade_plain(code, plain, run, how)
    found += await _grade_checked(code, checked, run, how)
    return sorted(found, key=lambda result: result.index)


async def _grade_plain(
    code: str, cases: list[tuple[int, StdinCase]], run: Any, how: Grading
) -> list[CaseResult]:
    async def one(place: int, case: StdinCase) -> CaseResult:
        report = await run(how.program(code, case.stdin))
        return case_result(place, report, judge(report, case.expected))

    results: list[CaseResult] = []
    if how.language in COMPILED and len(cases) > 1:
        first, cases = await one(*cases[0]), cases[1:]
        results.append(first)
        if first.result == COMPILE_ERROR:
            return results + [
                replace(first, index=place, status="compile_error_skipped") for place, _ in cases
            ]
    return results + await _all([one(place, case) for place, case in cases])


async def _grade_checked(
    code: str, cases: list[tuple[int, CallCase | TextCase]], run: Any, how: Grading
) -> list[CaseResult]:
    async def some(part: list[tuple[int, CallCase | TextCase]]) -> list[CaseResult]:
        checks = [case for _, case in part]
        program, nonce = checks_program(code, checks, how.timeout_s, how.memory_limit_mb)
        report = await run(program)
        seen = read_reports(_stdout(report), nonce, len(part))
        return [_checked(place, one, report) for (place, _), one in zip(part, seen, strict=True)]

    parts = [cases[at : at + CHECKS_A_RUN] for at in range(0, len(cases), CHECKS_A_RUN)]
    return [result for part in await _all([some(part) for part in parts]) for result in part]


def checks_program(
    code: str, checks: Sequence[CallCase | TextCase], case_s: float, memory_limit_mb: int
) -> tuple[Program, str]:
    """Return the program that runs these checks, and the word its reports begin with."""
    fields = [check.fields() for check in checks]
    return harness_program(code, fields, case_s=case_s, memory_limit_mb=memory_limit_mb)


def checked_result(index: int, report: RunReport, nonce: str) -> CaseResult:
    """Return the result of a case that was the only one of its run. Raises BadTests."""
    return _checked(index, read_reports(_stdout(report), nonce, 1)[0], report)


def _stdout(report: RunReport) -> str:
    return report.run_result.stdout if report.run_result else ""


async def _all(work: list[Any]) -> list[Any]:
    """Gather; the first failure ends the rest and is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def case_result(place: int, report: RunReport, verdict: Verdict) -> CaseResult:
    """Return the result of a case that is one run."""
    command = report.run_result or report.compile_result or CommandResult("")
    return CaseResult(
        index=place,
        result=verdict.result,
        status=verdict.status,
        message=report.message[:500],
        stdout=command.stdout,
        stderr=command.stderr,
        exit_code=command.return_code,
        duration_s=command.execution_time,
        stdout_bytes=command.stdout_bytes,
        output_flood=command.flooded,
    )


def _checked(place: int, seen: CaseReport, report: RunReport) -> CaseResult:
    if seen.status == "unused":
        raise BadTests(f"ground_truth: check {place} never uses the program")
    verdict = _CHECKED.get(seen.status) or _unseen(report)
    return CaseResult(
        place, verdict.result, verdict.status, message=seen.message, duration_s=seen.took_s
    )


def _unseen(report: RunReport) -> Verdict:
    """A check without a report did not pass, whatever the exit code says."""
    verdict = judge(report)
    if verdict.result == SANDBOX_FAULT and verdict.result is not True:
        return verdict
    return Verdict(RUNTIME_ERROR, "no_evidence") if verdict.result is True else verdict
