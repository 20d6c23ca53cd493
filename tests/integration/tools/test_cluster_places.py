"""Old names, new promise: the name in Redis is the singleton, whoever asks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from limiter import AcquireTimeout
from queue_client.tools import ExecutionWorker, TokenBucketWorker, init_execution_pool
from queue_client.tools.places import places


def fresh(rate_limit: int, name: str, url: str) -> TokenBucketWorker:
    """A worker as another process would make it."""
    places.cache_clear()
    return TokenBucketWorker(rate_limit, name=name, redis_url=url)


def test_two_workers_of_a_name_share_its_places(redis_url: str) -> None:
    one, two = fresh(2, "shared", redis_url), fresh(2, "shared", redis_url)
    one.acquire()
    two.acquire()
    assert one.current_count == two.current_count == 2
    with pytest.raises(AcquireTimeout):
        two.acquire(timeout_s=0)
    fresh(1, "other", redis_url).acquire(timeout_s=0)
    one.release()
    two.release()
    two.release()
    assert one.current_count == 0


def test_a_failing_function_gives_its_place_back(redis_url: str) -> None:
    worker = ExecutionWorker(True, 1, name="rotten", redis_url=redis_url)
    assert worker.execute(lambda: 1 / 0) is None
    assert worker.execute(lambda: 7) == 7
    assert fresh(1, "rotten", redis_url).current_count == 0


async def test_two_pools_of_a_name_stay_below_its_limit_together(redis_url: str) -> None:
    inside = most = 0
    lock = threading.Lock()
    pause = threading.Event()

    def visit() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        pause.wait(0.03)
        with lock:
            inside -= 1

    pools = []
    for _ in range(2):
        places.cache_clear()
        pools.append(init_execution_pool(6, True, 3, name="pooled", redis_url=redis_url))
    await asyncio.gather(*(pool.execute(visit) for pool in pools for _ in range(12)))
    assert 1 <= most <= 3
    for pool in pools:
        pool.close()
