"""Sync functions in threads: reused, bounded, abandoned when they hang."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from scoring_support import request

from queue_client import Kind
from worker.scoring.clock import RowClock
from worker.scoring.threads import Raised, ThreadPool


def clock(run_s=60.0):
    return RowClock(run_s, 60.0)


@pytest.fixture
async def threads():
    pool = ThreadPool(size=2)
    yield pool
    pool.close()


async def test_threads_are_bounded_and_reused(threads):
    seen = []

    def call():
        seen.append(threading.get_ident())
        time.sleep(0.01)

    await asyncio.gather(*(threads.run(call, clock()) for _ in range(20)))

    assert len(seen) == 20
    assert len(set(seen)) <= 2


async def test_a_hung_thread_costs_no_place_and_is_interrupted(threads):
    ended = threading.Event()

    def hang():
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.set()

    calls = [threads.run(hang, clock(0.2)) for _ in range(2)]
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(result) for result in results] == [TimeoutError, TimeoutError]
    assert await threads.run(lambda: 5, clock()) == 5
    assert await asyncio.to_thread(ended.wait, 10), "Python code is interrupted"


async def test_waiting_for_a_thread_is_no_run_time(threads):
    calls = [threads.run(lambda: time.sleep(0.3), clock(2.0)) for _ in range(16)]

    assert await asyncio.gather(*calls) == [None] * 16


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_a_function_raises_comes_back_as_data(threads, error):
    def fail():
        raise error

    with pytest.raises(Raised) as caught:
        await threads.run(fail, clock())
    assert caught.value.error is error
    assert await threads.run(lambda: 1, clock()) == 1


async def test_a_cancelled_call_frees_its_place(threads):
    calls = [asyncio.ensure_future(threads.run(lambda: time.sleep(0.5), clock())) for _ in "abc"]
    await asyncio.sleep(0.05)
    for call in calls:
        call.cancel()

    results = await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert await asyncio.wait_for(threads.run(lambda: 1, clock()), 5) == 1


async def test_an_engine_scores_in_threads_when_told_to(make_engine):
    engine = await make_engine(
        reward={"function": "misbehave", "executor": "thread", "timeout_s": 0.5}
    )

    good, raised, slept, exited = await asyncio.gather(
        *(engine.score(request(text)) for text in ("good", "raise 1", "sleep 1.5", "exit"))
    )

    assert good.reward == 4.0
    assert raised.kind is Kind.SCORER_ERROR
    assert slept.kind is Kind.TIMEOUT
    assert exited.kind is Kind.SCORER_ERROR
    assert exited.message == "SystemExit: 3"


async def test_a_long_response_of_a_built_in_leaves_the_loop_free(make_engine):
    engine = await make_engine()
    text = "x" * 200_000 + "#### 42"

    outcome = await engine.score(request(text, data_source="openai/gsm8k", ground_truth="42"))

    assert outcome.reward == 1.0
