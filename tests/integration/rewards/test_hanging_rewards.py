"""Maths and regular expressions without end cost their own row, wherever they run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from judge_stub import JudgeStub, refusal, verdict
from rq import Queue, Worker
from rq.serializers import JSONSerializer

from queue_client import Kind, Outcome, Output, Trajectory
from worker.rewards.math_verifier import compute_score
from worker.scoring.engine import ScoreRequest, ScoringEngine
from worker.settings import settings_from

THIRD = {
    "data_source": None,
    "solution_str": "\\boxed{\\frac{1}{3}}",
    "ground_truth": "\\frac{1}{3}",
}


#: Takes 4 s of a free core to compare, right as it is.
SLOW_ROLLOUT = "math_with_judge-1"


@asynccontextmanager
async def engine(**tree: Any) -> AsyncIterator[Callable[..., Any]]:
    """A scoring engine; yields a function that scores one response."""
    running = ScoringEngine(settings_from(tree))
    await running.start()

    async def score(response: str, truth: str = "4", source: str | None = None) -> Outcome:
        row = Trajectory([Output(text=response)], data_source=source, ground_truth=truth)
        return await running.score(ScoreRequest(row))

    try:
        yield score
    finally:
        await running.close()


def test_a_fraction_is_verified_in_the_main_thread() -> None:
    assert compute_score(**THIRD)["score"] == 1.0


def test_a_fraction_is_verified_in_another_thread() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(compute_score(**THIRD)))

    thread.start()
    thread.join()

    assert found[0]["score"] == 1.0


async def test_a_fraction_is_verified_in_the_loops_executor() -> None:
    found = await asyncio.to_thread(compute_score, **THIRD)

    assert found["score"] == 1.0


def test_a_fraction_is_verified_in_a_plain_rq_work_horse(
    redis_url: str, connection: redis.Redis
) -> None:
    # JSON on both sides: a test before this one may have taken pickle out of RQ in this process.
    queue = Queue("plain", connection=connection, serializer=JSONSerializer)
    job = queue.enqueue(
        "worker.rewards.math_verifier.compute_score",
        kwargs=THIRD,
        job_timeout=60,
        result_ttl=60,
        failure_ttl=60,
    )

    command = [sys.executable, "-m", "rq.cli", "worker", "-u", redis_url, "-S", "json", "--burst"]
    done = subprocess.run([*command, "plain"], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr

    assert job.return_value()["score"] == 1.0
    assert Worker.count(connection=connection) == 0


async def test_a_fraction_is_verified_by_the_engine() -> None:
    async with engine() as score:
        outcome = await score(THIRD["solution_str"], THIRD["ground_truth"])

    assert (outcome.reward, outcome.extra["pred"]) == (1.0, "\\frac{1}{3}")


async def test_a_regular_expression_without_end_costs_its_row_and_no_heartbeat(
    tmp_path: Path,
) -> None:
    path = tmp_path / "endless_regex.py"
    path.write_text(
        "import re\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(re.search('(a+)+$', solution_str) is not None)\n"
    )
    beats: list[float] = []

    async def heart() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.05)

    tree = {"function": f"{path}:compute_score", "timeout_s": 2}
    async with engine(reward=tree) as score:
        beating = asyncio.create_task(heart())
        bad, *good = await asyncio.gather(score("a" * 40 + "b"), *(score("aaa") for _ in range(20)))
        beating.cancel()

    assert bad.kind == Kind.TIMEOUT
    assert [each.reward for each in good] == [1.0] * 20
    assert len(beats) >= 10


@pytest.mark.parametrize("status", [503, 401])
async def test_a_judge_that_is_down_fails_rows_and_scores_none(
    judge: JudgeStub, status: int
) -> None:
    judge.answers(refusal(status))
    kwargs = {"base_url": judge.url, "model": "m"}
    source = {"function": "builtin:judge", "kwargs": kwargs, "backoff_s": 0.01}
    async with engine(reward={"sources": {"essay": source}}) as score:
        down = await asyncio.gather(*(score(f"wrong {n}", source="essay") for n in range(20)))
        asked = len(judge.requests)
        judge.answers(verdict(0.0))
        back = await asyncio.gather(*(score(f"wrong {n}", source="essay") for n in range(20)))

    assert {(each.kind, each.reward) for each in down} == {(Kind.UPSTREAM_ERROR, None)}
    assert {each.retryable for each in down} == {status == 503}
    assert asked == (20 * 3 if status == 503 else 20)
    assert {each.reward for each in back} == {0.0}


async def test_an_unreadable_judge_fails_the_row_as_unparseable(judge: JudgeStub) -> None:
    judge.answers(refusal(200, {"choices": [{"message": {"content": "A fine answer: 1"}}]}))
    kwargs = {"endpoints": [judge.url], "model": "m"}
    async with engine(reward={"function": "builtin:judge", "kwargs": kwargs}) as score:
        outcome = await score("four")

    assert (outcome.kind, outcome.reward) == (Kind.UNPARSEABLE, None)
    assert len(judge.requests) == 2


async def test_an_unknown_source_fails_its_row_and_says_which_there_are() -> None:
    async with engine() as score:
        outcome, other = await asyncio.gather(
            score("#### 4", source="openai/gsm9k"), score("#### 4", source="openai/gsm8k")
        )

    assert outcome.kind == Kind.BAD_INPUT
    assert "openai/gsm8k" in outcome.message
    assert other.reward == 1.0


async def test_rollouts_of_a_maths_run_get_the_verdicts_of_the_library(data: Path) -> None:
    lines = (data / "math_rollouts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["id"] != SLOW_ROLLOUT]

    async with engine(reward={"timeout_s": 60}) as score:
        outcomes = await asyncio.gather(
            *(score(row["response"], row["ground_truth"]) for row in rows)
        )

    assert [each.reward for each in outcomes] == [row["library_reward"] for row in rows]
