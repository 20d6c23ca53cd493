"""The code reward: does the program in a response pass its tests?

Sources `codecontests`, `apps`, `codeforces` and `taco` come here. Runs on a Sandbox Fusion server
if one is named, else on this machine. An outage is a failure of the row, never a score of 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from worker.rewards.errors import BadInput, SandboxFailure
from worker.sandbox.backends import backend_at, limit_of, place_of
from worker.sandbox.cases import read_cases
from worker.sandbox.errors import BadTests, SandboxProblem, UnsupportedLanguage
from worker.sandbox.extract import extract_code
from worker.sandbox.grading import CaseResult, Grading, grade
from worker.sandbox.limits import Limit
from worker.settings import SandboxSettings


async def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    sandbox_fusion_url: str | None = None,
    continuous: bool = True,
    timeout: float = 10.0,
    memory_limit_mb: int | None = None,
    language: str = "python",
    limits: Mapping[str, Limit] | None = None,
    limit: str | None = None,
    max_cases: int | None = None,
    sandbox: SandboxSettings | None = None,
    concurrent_semaphore: Any = None,
) -> dict[str, Any]:
    """Score a response: the share of cases passed, or with `continuous=False` all or nothing.

    `timeout` is seconds for compiling and for each case. Every case counts unless `max_cases`
    says otherwise. `limit` names the limit in `limits` that each call to the server takes; what is
    not given comes from `sandbox`, the worker's settings. `concurrent_semaphore` is accepted for
    verl's sake and has no effect.
    Raises BadInput for tests that cannot be read, SandboxFailure when the sandbox failed.
    """
    del data_source, extra_info, concurrent_semaphore
    sandbox = sandbox or SandboxSettings()
    try:
        cases = read_cases(ground_truth)[:max_cases]
        code = extract_code(solution_str, language)
        if code is None or not code.strip():
            return _scores([], len(cases), "no_code", continuous=continuous)
        url = sandbox_fusion_url or sandbox.url
        results = await grade(
            code,
            cases,
            backend_at(place_of(sandbox, url=url)),
            how=Grading(language, timeout, memory_limit_mb or sandbox.memory_limit_mb),
            limit=_limit(limits, limit, sandbox) if url else None,
            # the engine's limits carry the row's clock
            waiting=getattr(getattr(limits, "clock", None), "waiting", None),
        )
    except (BadTests, UnsupportedLanguage) as error:
        raise BadInput(str(error)) from error
    except SandboxProblem as error:
        failure = SandboxFailure(str(error))
        failure.retryable = error.retryable
        raise failure from error
    _refuse_faults(results)
    return _scores(results, len(cases), _first_status(results), continuous=continuous)


def _limit(
    limits: Mapping[str, Limit] | None, name: str | None, sandbox: SandboxSettings
) -> Limit | None:
    if name is not None and limits is not None:
        return limits[name]  # asked for by name: a wrong one is an error
    return limit_of(limits, name or sandbox.limit)


def _refuse_faults(results: Sequence[CaseResult]) -> None:
    """A case that the sandbox did not judge makes the whole row unjudged."""
    for result in results:
        if not isinstance(result.result, bool) and result.result == -1:
            raise SandboxFailure(f"case {result.index}: {result.status}: {result.message[:200]}")


def _first_status(results: Sequence[CaseResult]) -> str:
    return next((result.status for result in results if not result.passed), "success")


def _scores(
    results: Sequence[CaseResult], total: int, status: str, *, continuous: bool
) -> dict[str, Any]:
    passed = sum(result.passed for result in results)
    all_passed = total > 0 and passed == total
    return {
        "score": passed / total if continuous else float(all_passed),
        "acc": all_passed,
        "passed": passed,
        "total": total,
        "status": status,
        "output_flood": any(result.output_flood for result in results),
        "stdout_bytes": max((result.stdout_bytes for result in results), default=0),
    }
