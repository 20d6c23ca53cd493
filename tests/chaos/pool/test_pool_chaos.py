"""The pool with its default times, and for long: what `make test` has no time for."""

from __future__ import annotations

import random
import time

import psutil
import pytest
import redis
from pool_growth import check_flat, run_many
from pool_server import LastingServer, check_outage
from pool_support import Producer, Workers, await_true

from queue_client import Kind

QUICK = {"heartbeat_s": 1, "expiry_s": 4, "sweep_s": 1}


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_thirty_seconds_without_redis_cost_nothing(lasting: LastingServer, crew: Workers) -> None:
    check_outage(lasting, crew, 30)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_jobs_leave_nothing_behind(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    check_flat(run_many(workers, producer, connection, 100_000))


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_killed_workers_jobs_are_back_within_forty_seconds_by_default(
    workers: Workers, producer: Producer
) -> None:
    first = workers.start()
    hanging = {"do": "sleep", "s": 300, "only_first": True}
    for number in range(50):
        producer.send([hanging, {}], uid=f"{number}-")
    producer.collect(50)
    await_true(lambda: sum(workers.starts().values()) == 100)
    workers.start()
    time.sleep(12)  # in the middle of heartbeats and sweeps
    first.kill()
    killed = time.monotonic()

    producer.collect(100, timeout_s=60)

    assert time.monotonic() - killed <= 40
    assert producer.copies == 0
    assert set(workers.starts().values()) == {1, 2}


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_worker_frozen_past_its_expiry_is_fenced_by_default(
    workers: Workers, producer: Producer
) -> None:
    first = workers.start()
    job = producer.send([{"do": "sleep", "s": 2}])
    await_true(lambda: sum(workers.starts().values()) == 1)
    process = psutil.Process(first.pid)
    process.suspend()
    workers.start()
    time.sleep(50)
    process.resume()

    producer.collect(1)
    await_true(lambda: "execution lost" in workers.log(first))
    producer.read(block_ms=500)

    assert producer.copies == 0
    assert producer.outcomes[job, 0].attempts == 2
    assert first.poll() is None


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_loop_busy_for_three_expiries_runs_its_row_once(
    workers: Workers, producer: Producer
) -> None:
    workers.start()
    workers.start()
    producer.send([{"do": "spin", "s": 60}])
    producer.collect(1, timeout_s=120)
    assert sum(workers.starts().values()) == 1


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_killers_cost_only_themselves_while_workers_come_and_go(
    workers: Workers, producer: Producer
) -> None:
    chance = random.Random(5)
    killers = set(chance.sample(range(8 * 64), 3))
    jobs = [
        producer.send([{"do": "die"} if batch * 64 + row in killers else {"do": "sleep", "s": 0.1}
                       for row in range(64)])
        for batch in range(8)
    ]  # fmt: skip
    crew = [workers.start(wait=False, **QUICK) for _ in range(2)]
    end = time.monotonic() + 500
    while len(producer.outcomes) < 512 and time.monotonic() < end:
        producer.live()
        producer.read()
        crew = [one if one.poll() is None else workers.start(wait=False, **QUICK) for one in crew]

    outcomes = producer.collect(512, timeout_s=1)

    lost = {
        jobs.index(job_id) * 64 + row
        for (job_id, row), outcome in outcomes.items()
        if outcome.kind is Kind.WORKER_LOST
    }
    assert lost == killers
    assert sum(outcome.ok for outcome in outcomes.values()) == 512 - len(killers)
    assert producer.copies == 0
