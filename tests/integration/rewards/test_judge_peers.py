"""The judge before an independent OpenAI-shaped server that keeps quotas and judges its clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from queue_client import Kind, Outcome, Output, Trajectory
from worker.scoring.engine import ScoreRequest, ScoringEngine
from worker.settings import SettingsError, settings_from

pytest.importorskip("llmock")

VERDICT = '{"reason": "the same", "score": 1}'


@asynccontextmanager
async def engines(count: int, redis_url: str, llmock: Any, **limit: Any) -> AsyncIterator[Any]:
    """So many engines under one limit; yields a function that scores rows over all of them."""
    tree = {
        "redis": {"url": redis_url},
        "limits": {"judge": limit},
        "reward": {
            "function": "builtin:judge",
            "backoff_s": 0.05,
            "kwargs": {
                "base_url": llmock.base_url("openai"),
                "model": "m",
                "limit": "judge",
                "max_tokens": 32,
            },
        },
    }
    async with AsyncExitStack() as stack:
        running = []
        for _ in range(count):
            engine = ScoringEngine(settings_from(tree))
            await engine.start()
            stack.push_async_callback(engine.close)
            running.append(engine)

        async def score(rows: int) -> list[Outcome]:
            return await asyncio.gather(
                *(
                    running[row % count].score(
                        ScoreRequest(Trajectory([Output(text=f"answer {row}")], ground_truth="4"))
                    )
                    for row in range(rows)
                )
            )

        yield score


async def test_one_429_pauses_every_engine_once_and_costs_no_row(
    llmock: Any, redis_url: str
) -> None:
    llmock.rate_limit(retry_after=1.0).reply(VERDICT, times=None)

    async with engines(2, redis_url, llmock, max_concurrent=1) as score:
        outcomes = await score(8)

    assert [each.reward for each in outcomes] == [1.0] * 8
    assert sorted(each.attempts for each in outcomes) == [1] * 7 + [2]
    statuses = Counter(each.status for each in llmock.requests)
    assert statuses == {200: 8, 429: 1}
    llmock.assert_resilient(strict=True)


async def test_a_prompt_over_the_context_is_asked_once(llmock: Any, redis_url: str) -> None:
    llmock.context_overflow(times=None)

    async with engines(1, redis_url, llmock) as score:
        (outcome,) = await score(1)

    assert (outcome.kind, outcome.retryable) == (Kind.UPSTREAM_ERROR, False)
    assert "maximum context length" in outcome.message
    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


async def test_a_short_outage_is_tried_again(llmock: Any, redis_url: str) -> None:
    llmock.fail(503, times=2).reply(VERDICT, times=None)

    async with engines(1, redis_url, llmock) as score:
        (outcome,) = await score(1)

    assert (outcome.reward, outcome.attempts) == (1.0, 3)


@pytest.mark.chaos
async def test_engines_that_share_a_quota_never_meet_a_429(llmock: Any, redis_url: str) -> None:
    llmock.limits(rpm=240, tpm=200_000).reply(VERDICT, times=None)

    # The quota's clock starts when the first call arrives, ours when it is granted: 5 % below.
    async with engines(3, redis_url, llmock, rpm=228, tpm=190_000) as score:
        outcomes = await score(300)

    assert [each.reward for each in outcomes] == [1.0] * 300
    assert Counter(each.status for each in llmock.requests) == {200: 300}
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("manager", ["naive", "rate_limited"])
async def test_a_judged_row_takes_one_lease_whoever_takes_it(
    llmock: Any, redis_url: str, manager: str
) -> None:
    llmock.reply(VERDICT, times=None)
    reward = {
        "function": "builtin:judge",
        "manager": manager,
        "limit": "judge",
        "kwargs": {"base_url": llmock.base_url("openai"), "model": "m"},
        "budget_s": 60,
    }
    tree = {"redis": {"url": redis_url}, "limits": {"judge": {"max_concurrent": 1}}}
    engine = ScoringEngine(settings_from({**tree, "reward": reward}))
    await engine.start()
    try:
        row = Trajectory([Output(text="four")], ground_truth="4")
        outcomes = await asyncio.gather(*(engine.score(ScoreRequest(row)) for _ in range(5)))
    finally:
        await engine.close()

    assert [each.reward for each in outcomes] == [1.0] * 5


async def test_a_limit_that_would_be_taken_twice_is_refused_at_start(redis_url: str) -> None:
    kwargs = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "limit": "judge"}
    reward = {"function": "builtin:judge", "manager": "rate_limited", "limit": "judge"}
    tree = {"redis": {"url": redis_url}, "limits": {"judge": {"max_concurrent": 1}}}
    engine = ScoringEngine(settings_from({**tree, "reward": {**reward, "kwargs": kwargs}}))

    with pytest.raises(SettingsError, match=r"reward\.kwargs\.limit: .*'judge'.*manager"):
        await engine.start()

    await engine.close()
