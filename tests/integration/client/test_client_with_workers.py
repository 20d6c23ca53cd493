"""The client and real workers together."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from client_consumer import until
from client_workers import Workers

from queue_client import Kind, Outcome, Output, RewardClient, Trajectory

PRODUCERS, ROWS = 4, 1_000


def row(name: str, reward: float, *, sleep_s: float = 0.0) -> Trajectory:
    return Trajectory(
        outputs=[Output(text="x")],
        uid=name,
        extra_info={"name": name, "reward": reward, "sleep_s": sleep_s},
    )


@pytest.fixture
def workers(redis_url: str, tmp_path: Path):
    with Workers(redis_url, tmp_path) as running:
        yield running


def test_four_producers_get_each_their_own_in_order_though_a_worker_dies(
    workers: Workers, redis_url: str
):
    workers.start(3)
    chance = random.Random(7)
    found: dict[int, list[Outcome]] = {}
    halfway = threading.Event()

    def produce(number: int) -> None:
        trajectories = [
            row(f"{number}-{n}", number * ROWS + n, sleep_s=chance.random() * 0.5)
            for n in range(ROWS)
        ]
        with RewardClient(redis_url) as client:
            futures = client.submit(trajectories, timeout_s=150)
            futures[ROWS // 4].add_done_callback(lambda _: halfway.set())
            found[number] = [future.result() for future in futures]
            assert client.metrics()["rewardpool/done"] == ROWS

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    assert halfway.wait(100)
    workers.processes[0].kill()
    for thread in threads:
        thread.join(160)
    assert sorted(found) == list(range(PRODUCERS))
    for number, outcomes in found.items():
        failed = [outcome for outcome in outcomes if not outcome.ok]
        assert not failed, (failed[:3], workers.log()[-3000:])
        assert [o.reward for o in outcomes] == [number * ROWS + n for n in range(ROWS)]
        assert [o.uid for o in outcomes] == [f"{number}-{n}" for n in range(ROWS)]
    starts = Counter(workers.starts())
    assert len(starts) == PRODUCERS * ROWS
    twice = [name for name, count in starts.items() if count > 1]
    # what the dead worker had in flight, and what it had scored and not yet delivered
    assert len(twice) <= 2 * 256
    assert max(starts.values()) <= 3


async def test_fast_rows_arrive_before_a_slow_neighbour_and_a_cancel_stops_it(
    workers: Workers, redis_url: str
):
    await asyncio.to_thread(workers.start)
    with RewardClient(redis_url) as client:
        futures = client.submit(
            [row("slow", 0, sleep_s=300), *(row(f"quick{n}", n) for n in range(20))], timeout_s=400
        )
        quick = await asyncio.wait_for(asyncio.gather(*futures[1:]), 60)
        assert [outcome.reward for outcome in quick] == list(range(20))
        assert not futures[0].done()
        client.cancel(futures[:1])
        assert futures[0].result(0).kind == Kind.CANCELLED
        # the worker's place is free again when it says so itself
        await asyncio.to_thread(until, lambda: in_flight(redis_url) == 0, timeout_s=60)


def in_flight(url: str) -> int:
    import redis

    with redis.Redis.from_url(url) as connection:
        return sum(connection.zcard(key) for key in connection.scan_iter("rq:wip:*"))
