"""Redis goes away and comes back: nothing finished is lost and no worker needs a restart."""

from __future__ import annotations

import time
from pathlib import Path

import redis
from pool_server import LastingServer, check_outage
from pool_support import Producer, Workers, await_true

QUICK = {"heartbeat_s": 1, "expiry_s": 4, "sweep_s": 1}


def test_three_seconds_without_redis_cost_nothing(lasting: LastingServer, crew: Workers) -> None:
    check_outage(lasting, crew, 3)


def test_an_outage_longer_than_the_expiry_costs_no_finished_work(
    lasting: LastingServer, crew: Workers
) -> None:
    crew.start = lambda _start=crew.start: _start(**QUICK)  # type: ignore[method-assign]
    check_outage(lasting, crew, 6)


def test_killed_connections_are_made_again(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    worker = workers.start("rewards", "spare")
    job = producer.send([{"do": "sleep", "s": 1}] * 4)
    await_true(lambda: sum(workers.starts().values()) == 4)
    for _ in range(5):
        for kind in ("normal", "pubsub"):
            connection.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        producer.send([{}])
        time.sleep(0.2)

    producer.collect(9)

    assert set(workers.starts().values()) <= {1, 6}
    stopped = producer.send([{"do": "sleep", "s": 300}], uid="stopped")
    await_true(lambda: workers.starts()["stopped0"] == 1)
    from rq.command import send_stop_job_command

    from queue_client.wire import Serializer

    def stop() -> bool:
        send_stop_job_command(connection, stopped, serializer=Serializer)
        producer.read(block_ms=200)
        return stopped in producer.ends

    await_true(stop, timeout_s=20)
    assert worker.poll() is None
    assert producer.status(job) == "finished"


def test_a_worker_without_redis_ends_at_once_with_an_error(tmp_path: Path) -> None:
    crew = Workers("redis://127.0.0.1:1/0", tmp_path)
    worker = crew.start(wait=False)
    try:
        assert worker.wait(60) == 1
    finally:
        crew.stop()
