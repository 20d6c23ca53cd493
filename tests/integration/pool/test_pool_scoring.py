"""The worker as `rq worker` starts it: rows in, outcomes out, RQ's own keys kept."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis
from pool_support import Producer, Workers, await_true


def test_every_row_gets_one_outcome(workers: Workers, producer: Producer) -> None:
    workers.start()
    jobs = [producer.send([{"reward": i} for i in range(8)], uid=f"job{n}-") for n in range(20)]

    outcomes = producer.collect(160)

    assert producer.copies == 0
    for number, job_id in enumerate(jobs):
        assert [outcomes[job_id, row].reward for row in range(8)] == list(range(8))
        assert outcomes[job_id, 3].uid == f"job{number}-3"
        producer.await_status(job_id, "finished")
    assert set(workers.starts().values()) == {1}


def test_a_job_pushed_twice_runs_once(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    job = producer.send([{"do": "sleep", "s": 1}])
    connection.rpush("rq:queue:rewards", job, job)
    workers.start()
    await_true(lambda: sum(workers.starts().values()) == 1)
    connection.hset(f"rq:job:{job}", "status", "queued")  # as a repeated enqueue leaves it
    connection.rpush("rq:queue:rewards", job)

    producer.collect(1)
    connection.rpush("rq:queue:rewards", job)
    await_true(lambda: not connection.exists("rq:queue:rewards"))

    assert workers.starts() == {"row0": 1}
    assert producer.copies == 0
    assert producer.status(job) == "finished"


def test_a_full_worker_holds_no_job_of_another_queue(
    workers: Workers, new_producer: Callable[[str], Producer], connection: redis.Redis
) -> None:
    first, second = new_producer("a"), new_producer("b")
    workers.start("a", "b", concurrency=1)
    await_true(lambda: connection.info("clients")["blocked_clients"] == 2)
    first.send([{"do": "sleep", "s": 300}], uid="a")
    await_true(lambda: workers.starts()["a0"] == 1)
    waiting = second.send([{}], uid="b")

    time.sleep(2)
    assert connection.lrange("rq:queue:b", 0, -1) == [waiting.encode()]
    assert not connection.exists("rq:queue:b:intermediate")

    workers.start("b")
    assert second.collect(1)[waiting, 0].ok


def test_a_worker_started_without_our_job_and_serializer_uses_them(
    workers: Workers, producer: Producer
) -> None:
    workers.start(classes=())
    job = producer.send([{}])
    assert producer.collect(1)[job, 0].ok
    producer.await_status(job, "finished")
