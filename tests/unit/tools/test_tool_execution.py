"""The execution framework by its old names."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker

import pytest

from queue_client.tools import (
    ExecutionPool,
    ExecutionWorker,
    PoolMode,
    TokenBucketWorker,
    init_execution_pool,
)
from queue_client.tools.places import ProcessPlaces, places


@pytest.fixture(autouse=True)
def _fresh_places() -> Iterator[None]:
    places.cache_clear()
    yield
    places.cache_clear()


class Counter:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def visit(self, number: int) -> int:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.02)
        with self.lock:
            self.inside -= 1
        if number == 10:
            raise ValueError("ten")
        return number


def square(number: int) -> int:
    return number * number


def end_process() -> None:
    os._exit(3)


async def test_a_pool_runs_functions_in_order_of_the_results_asked_for() -> None:
    pool = init_execution_pool(num_workers=8, enable_global_rate_limit=True, rate_limit=3)
    counter = Counter()
    results = await asyncio.gather(*(pool.execute(counter.visit, n) for n in range(10)))
    assert results == list(range(10))
    assert counter.most <= 3
    pool.close()


async def test_a_pool_raises_what_the_function_raises_and_frees_its_place() -> None:
    pool = init_execution_pool(4, True, 2, PoolMode.ThreadMode)
    counter = Counter()
    tasks = [pool.execute.remote(counter.visit, n) for n in range(20)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[10], ValueError)
    assert [r for r in results if not isinstance(r, ValueError)] == [
        n for n in range(20) if n != 10
    ]
    assert pool.limit is not None
    assert pool.limit.usage().in_flight == 0
    pool.close()


def test_a_pool_works_from_several_event_loops_and_without_one() -> None:
    pool = init_execution_pool(2, True, 1)
    for _ in range(3):
        assert asyncio.run(_executed(pool)) == 9
    assert pool.run(square, 4) == 16
    assert pool.submit(square, 5).result(timeout=30) == 25
    pool.close()


async def _executed(pool: ExecutionPool) -> int:
    return await pool.execute(square, 3)


async def test_without_a_limit_a_pool_works() -> None:
    pool = init_execution_pool(2, enable_global_rate_limit=False)
    assert pool.limit is None
    assert await pool.execute(square, 3) == 9
    pool.close()


async def test_processes_run_functions_and_survive_one_that_ends() -> None:
    pool = init_execution_pool(1, True, 1, PoolMode.ProcessMode)
    assert await pool.execute(square, 3) == 9
    with pytest.raises(RuntimeError, match="ended its process"):
        await pool.execute(end_process)
    assert await pool.execute(square, 4) == 16
    with pytest.raises(TypeError):
        await pool.execute(square)
    pool.close()
    resource_tracker._resource_tracker._stop()  # Python's own, else there until we end


def test_a_worker_warns_and_returns_none(caplog: pytest.LogCaptureFixture) -> None:
    worker = ExecutionWorker(enable_global_rate_limit=True, rate_limit=1)
    assert worker.ping()
    assert worker.execute(square, 3) == 9
    with caplog.at_level(logging.WARNING):
        assert worker.execute(Counter().visit, 10) is None
    assert "ValueError: ten" in caplog.text
    assert worker.limit is not None
    assert worker.limit.usage().in_flight == 0
    assert ExecutionWorker(enable_global_rate_limit=False).execute(square, 2) == 4


def test_a_token_bucket_worker_counts_places(caplog: pytest.LogCaptureFixture) -> None:
    bucket = TokenBucketWorker(rate_limit=2, name="t")
    other = TokenBucketWorker(rate_limit=2, name="t")
    bucket.acquire()
    other.acquire()
    assert bucket.current_count == bucket.get_current_count() == 2
    with pytest.raises(TimeoutError):
        bucket.acquire(timeout_s=0.01)
    bucket.release()
    other.release()
    assert bucket.current_count == 0
    bucket.release()
    assert bucket.current_count == 0
    assert "release without acquire" in caplog.text


def test_each_name_has_its_own_places() -> None:
    sandbox, search = TokenBucketWorker(1, name="sandbox"), TokenBucketWorker(1, name="search")
    sandbox.acquire()
    search.acquire(timeout_s=0)
    sandbox.release()
    search.release()


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "3"])
def test_nonsense_numbers_are_refused(number: object) -> None:
    with pytest.raises(ValueError, match="rate_limit"):
        TokenBucketWorker(number)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_workers"):
        init_execution_pool(number)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="PoolMode"):
        init_execution_pool(1, False, 1, "ray")  # type: ignore[arg-type]


def test_a_place_that_is_not_given_back_runs_out() -> None:
    limit = ProcessPlaces(1)
    limit.acquire(lease_s=0.05)
    limit.acquire(timeout_s=30).release()
    assert limit.in_flight == 0


def test_a_pause_holds_everybody_back() -> None:
    limit = ProcessPlaces(5)
    limit.throttle(retry_after_s=60)
    with pytest.raises(TimeoutError):
        limit.acquire(timeout_s=0.01)


def test_a_released_place_goes_to_one_that_waits() -> None:
    limit = ProcessPlaces(1)
    held = limit.acquire()
    waiting = threading.Thread(target=lambda: limit.acquire().release())
    waiting.start()
    held.release()
    held.release()
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    assert limit.in_flight == 0
