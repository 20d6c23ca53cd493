"""Pages of a large pool: quick, and cheap for Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from dashboard_seeds import Page, store_worker

from limiter import Limiter, Limits
from worker.ops.metrics import PoolCollector

JOBS = 100_000
WORKERS = 300
PAGE_S = 1.0
PATHS = {
    "queues": ("/", "/0/data/queues.json"),
    "first queued": (
        "/0/view/jobs/rewards/queued/50/asc/1", "/0/data/jobs/rewards/queued/50/asc/1.json",
    ),
    "last queued": (
        "/0/view/jobs/rewards/queued/50/asc/2000", "/0/data/jobs/rewards/queued/50/asc/2000.json",
    ),
    "newest failed": (
        "/0/view/jobs/rewards/failed/200/dsc/1", "/0/data/jobs/rewards/failed/200/dsc/1.json",
    ),
    "middle failed": (
        "/0/view/jobs/rewards/failed/200/asc/250", "/0/data/jobs/rewards/failed/200/asc/250.json",
    ),
    "workers": ("/0/view/workers", "/0/data/workers.json"),
    "limits": ("/0/view/limits",),
    "one job": ("/0/view/job/f-77", "/0/data/job/f-77.json"),
}  # fmt: skip
FILL = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  for _, kind in ipairs({ 'q', 'f' }) do
    local id = kind .. '-' .. number
    local key = 'rq:job:' .. id
    redis.call('HSET', key, 'created_at', '2026-01-02T03:04:05.000000Z', 'origin', 'rewards',
      'description', 'batch of 32 rows', 'status', kind == 'q' and 'queued' or 'failed',
      'data', string.rep('d', 200), 'exc_info', kind == 'f' and 'timeout: ' .. number or '')
    redis.call('EXPIRE', key, 600)
    if kind == 'q' then
      redis.call('RPUSH', 'rq:queue:rewards', id)
    else
      redis.call('ZADD', 'rq:failed:rewards', 4e9 + number, id)
    end
  end
end
"""


@pytest.fixture
def large(connection: redis.Redis) -> Iterator[redis.Redis]:
    """A pool with 100,000 queued jobs, 100,000 failed ones and 300 workers."""
    connection.sadd("rq:queues", "rq:queue:rewards")
    for start in range(0, JOBS, 5000):  # small enough that nothing else waits long
        connection.eval(FILL, 0, start, start + 4999)
    for number in range(WORKERS):
        store_worker(connection, f"node-{number % 40}.{number}")
    yield connection
    connection.flushall()  # the check for lasting keys would look at each of 200,000


def quickest(action: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the best of some tries: others use this machine too."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return min(took)


def spent_us(connection: redis.Redis) -> dict[str, tuple[int, int]]:
    """Calls and microseconds of server time by command."""
    stats = connection.info("commandstats")
    return {name: (one["calls"], one["usec"]) for name, one in stats.items()}


async def test_pages_and_scrapes_stay_under_a_second(
    page: Page, large: redis.Redis, redis_url: str
) -> None:
    limiters = [
        Limiter(redis_url, Limits(name=f"judge-{number}", max_concurrent=8, rpm=600))
        for number in range(20)
    ]
    for limiter in limiters:
        async with limiter.lease(tokens=1):
            pass
        await limiter.close()

    for name, paths in PATHS.items():

        def opened(paths: tuple[str, ...] = paths) -> None:
            for path in paths:
                assert page.get(path).status_code == 200, path

        large.config_resetstat()
        took = quickest(opened)
        calls, used_us = map(sum, zip(*spent_us(large).values(), strict=True))
        print(
            f"{name}: {1000 * took:.0f} ms, {calls / 5:.0f} commands, {used_us / 5:.0f} us in Redis"
        )
        assert took < PAGE_S, name
        assert used_us / 5 < 100_000, f"{name} costs Redis {used_us / 5} us a view"

    scraped = quickest(lambda: list(PoolCollector(large).collect()))
    print(f"scrape: {1000 * scraped:.0f} ms")
    assert scraped < PAGE_S


@pytest.mark.chaos  # a browser on a busy machine
def test_long_lists_render_in_the_browser_within_a_second(
    chromium: Any, serve: Callable[..., str], large: redis.Redis
) -> None:
    address = serve(poll_ms=60_000)
    for path, selector in (
        ("/0/view/workers", "tr[data-role=worker]"),
        ("/0/view/jobs/rewards/failed/200/dsc/1", "tr[data-role=job]"),
        ("/", "tr[data-role=queue]"),
    ):

        def rendered(path: str = path, selector: str = selector) -> None:
            chromium.get(address + path)
            deadline = time.monotonic() + 60
            while not chromium.find_elements("css selector", selector):
                assert time.monotonic() < deadline
                time.sleep(0.01)

        took = quickest(rendered, times=3)
        print(f"{path}: {1000 * took:.0f} ms in the browser")
        assert took < PAGE_S, path
