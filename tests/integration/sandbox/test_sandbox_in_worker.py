"""The code reward and tool calls inside the scoring engine, and through the pool."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_server import Answer, SandboxServer, ran

from queue_client import Kind, Outcome, Output, Trajectory
from queue_client.client import RewardClient
from queue_client.tools import SandboxFusionTool
from worker.sandbox.local import LocalRunner
from worker.scoring.engine import ScoreRequest, ScoringEngine
from worker.settings import settings_from

TESTS = {"inputs": ["2", "3"], "outputs": ["4", "6"]}
Engines = Callable[..., Any]


def row(code: str, tests: Any = None, source: str = "taco") -> Trajectory:
    response = f"Here it is:\n```python\n{code}\n```"
    return Trajectory([Output(text=response)], source, tests or TESTS, uid="u")


@pytest.fixture
async def engine(redis_url: str) -> AsyncIterator[Engines]:
    """Makes a started engine; `sandbox` and `reward` are sections of the settings."""
    started: list[ScoringEngine] = []

    async def make(**sections: Any) -> ScoringEngine:
        settings = settings_from({"redis": {"url": redis_url}, **sections})
        made = ScoringEngine(settings)
        await made.start()
        started.append(made)
        return made

    yield make
    for each in started:
        await each.close()


async def scored(engine: ScoringEngine, trajectory: Trajectory) -> Outcome:
    return await engine.score(ScoreRequest(trajectory, math.inf, 0.0, 1))


@pytest.mark.parametrize("source", ["codecontests", "apps", "codeforces", "taco"])
async def test_verls_sources_are_scored_here(
    engine: Engines, runner: LocalRunner, source: str
) -> None:
    made = await engine()
    outcome = await scored(made, row("print(int(input()) * 2)", source=source))
    assert (outcome.reward, outcome.extra["passed"], outcome.kind) == (1.0, 2, None)


async def test_waiting_for_a_place_on_this_machine_is_not_run_time(
    engine: Engines, runner: LocalRunner
) -> None:
    made = await engine()
    code = "import time; time.sleep(0.5); print(4)"
    tests = {"inputs": [""], "outputs": ["4"]}
    rows = [row(code, tests) for _ in range(4 * (os.cpu_count() or 1))]
    outcomes = await asyncio.gather(*(scored(made, each) for each in rows))
    assert [outcome.reward for outcome in outcomes] == [1.0] * len(rows)
    last = max(outcomes, key=lambda outcome: outcome.wait_s)
    assert last.wait_s > 1.2  # three rounds of half a second went before


async def test_the_settings_name_the_server_and_its_limit(
    engine: Engines, stub: SandboxServer
) -> None:
    stub.answering = lambda body: Answer(200, ran(stdout=str(int(body["stdin"]) * 2)), sleep_s=0.05)
    made = await engine(sandbox={"url": stub.url}, limits={"sandbox": {"max_concurrent": 3}})
    outcomes = await asyncio.gather(*(scored(made, row("x")) for _ in range(10)))
    assert [outcome.reward for outcome in outcomes] == [1.0] * 10
    assert len(stub.seen) == 20
    assert stub.most_in_flight <= 3


async def test_an_outage_fails_the_row_and_never_scores_it(
    engine: Engines, stub: SandboxServer
) -> None:
    stub.answering = lambda body: Answer(503)
    made = await engine(
        sandbox={"url": stub.url, "retries": 1},
        reward={"retries": {"sandbox_error": 0}},
    )
    outcome = await scored(made, row("x"))
    assert (outcome.status, outcome.kind, outcome.reward) == ("failed", Kind.SANDBOX_ERROR, None)
    assert outcome.retryable


async def test_unreadable_tests_fail_their_row_only(engine: Engines, runner: LocalRunner) -> None:
    made = await engine()
    bad, good = await asyncio.gather(
        scored(made, row("x", {"inputs": ["1"]})), scored(made, row("print(int(input()) * 2)"))
    )
    assert (bad.kind, good.reward) == (Kind.BAD_INPUT, 1.0)


async def called(engine: ScoringEngine, tool: str, arguments: Any, left_s: float = 60) -> Outcome:
    deadline = time.monotonic() + left_s
    return await engine.call_tool(tool, arguments, deadline=deadline, queued_s=0.5)


async def test_a_tool_call_answers_in_extra(engine: Engines, runner: LocalRunner) -> None:
    made = await engine()
    outcome = await called(made, "sandbox", {"code": "print(6 * 7)"})
    assert (outcome.status, outcome.reward, outcome.wait_s) == ("scored", None, 0.5)
    assert (outcome.extra["stdout"], outcome.extra["status"]) == ("42\n", "success")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("sandbx", {}, "did you mean 'sandbox'"),
        ("shell", {}, "not offered"),
        ("sandbox", {}, "arguments.code"),
        ("sandbox", {"code": 1}, "arguments.code"),
        ("sandbox", {"code": "", "stdin": 1}, "arguments.stdin"),
        ("sandbox", {"code": "", "language": "bash"}, "arguments.language.*'bash'"),
        ("sandbox", {"code": "", "language": ["x"]}, "arguments.language"),
        ("sandbox", {"code": "", "timeout": 0}, "arguments.timeout"),
        ("sandbox", {"code": "", "timeout": math.nan}, "arguments.timeout"),
        ("sandbox", {"code": "", "memory_limit_mb": "x"}, "arguments.memory_limit_mb"),
    ],
)
async def test_a_call_that_asks_for_nonsense_is_bad_input(
    engine: Engines, tool: str, arguments: Any, said: str
) -> None:
    import re

    made = await engine(sandbox={"languages": ["python"]})
    outcome = await called(made, tool, arguments)
    assert (outcome.status, outcome.kind) == ("failed", Kind.BAD_INPUT)
    assert re.search(said, outcome.message)


async def test_a_call_is_bounded_by_the_workers_settings(
    engine: Engines, stub: SandboxServer
) -> None:
    stub.answering = lambda body: Answer(200, ran())
    made = await engine(sandbox={"url": stub.url, "max_timeout_s": 7, "memory_limit_mb": 256})
    await called(made, "sandbox", {"code": "", "timeout": 900, "memory_limit_mb": 10**6})
    body = stub.seen[0].body
    assert (body["run_timeout"], body["memory_limit_MB"]) == (7, 256)


async def test_a_call_past_its_deadline_is_out_of_time(
    engine: Engines, stub: SandboxServer
) -> None:
    stub.answering = lambda body: Answer(200, ran(), sleep_s=1.0)
    made = await engine(sandbox={"url": stub.url})
    outcome = await called(made, "sandbox", {"code": ""}, left_s=0.2)
    assert outcome.kind == Kind.TIMEOUT


async def test_an_outage_fails_the_call(engine: Engines, stub: SandboxServer) -> None:
    stub.answering = lambda body: Answer(200, ran("SandboxError", "Error", None))
    made = await engine(sandbox={"url": stub.url, "retries": 1})
    assert (await called(made, "sandbox", {"code": ""})).kind == Kind.SANDBOX_ERROR


@pytest.fixture
def pool(redis_url: str, tmp_path: Path) -> Iterator[str]:
    """One worker process on the queue `rewards`; gives the address of its Redis."""
    command = [sys.executable, "-m", "rq.cli", "worker", "-u", redis_url]
    command += ["-w", "worker.PoolWorker", "-j", "worker.PoolJob"]
    command += ["-S", "queue_client.wire.Serializer", "rewards"]
    config = {"REWARDPOOL_REDIS__URL": redis_url, "REWARDPOOL_SANDBOX__MAX_TIMEOUT_S": "20"}
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            command, env={**os.environ, **config}, stdout=log, stderr=log, cwd=tmp_path
        )
    yield redis_url
    worker.terminate()
    try:
        worker.wait(timeout=60)
    finally:
        worker.kill()
        worker.wait()


async def test_a_trainer_scores_code_and_calls_tools_through_the_pool(
    pool: str, runner: LocalRunner
) -> None:
    with RewardClient(pool, queue="rewards") as client:
        rows = [row("print(int(input()) * 2)"), row("import os; os._exit(0)")]
        outcomes = await client.score_async(rows, timeout_s=90)
    assert [outcome.reward for outcome in outcomes] == [1.0, 0.0], outcomes
    tool = SandboxFusionTool(config={"execution": "pool", "redis_url": pool, "queue": "rewards"})
    instance, _ = await tool.create()
    response, _, metrics = await tool.execute(instance, {"code": "print(6 * 7)"})
    assert (response.text, metrics["status"]) == ("42\n", "success")
    response, _, _ = await tool.execute(instance, {"code": "1 / 0"})
    assert (response.text or "").endswith("[Failed with exit code 1.]")
    tool.close()
