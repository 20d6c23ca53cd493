"""Reports about waits that are long: see docs/pool-reports.md."""

from __future__ import annotations

import time
from datetime import timedelta

import psutil
import pytest
import redis
from pool_support import Producer, Workers, await_true
from rq import Queue

from queue_client import protocol
from queue_client.wire import Serializer


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_a_job_is_due_though_its_scheduler_was_killed(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    """The lock of a scheduler that was killed lasts a minute; RQ's next one looks each minute."""
    worker = psutil.Process(workers.start(options=("--with-scheduler",)).pid)
    await_true(lambda: connection.exists("rq:scheduler-lock:rewards"))
    [scheduler] = worker.children()
    scheduler.kill()
    later = protocol.new_job_id(producer.id)
    connection.set(protocol.payload_key(later), b"", ex=300)
    Queue("rewards", connection=connection, serializer=Serializer).enqueue_in(
        timedelta(seconds=1),
        protocol.SCORE_FUNCTION,
        *protocol.Reference(later, 1).args(),
        job_id=later,
        failure_ttl=60,
    )
    connection.expire(f"rq:job:{later}", 300)

    assert "payload" in producer.await_end(later, timeout_s=240)[1]


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_an_idle_worker_keeps_its_connections_and_stays_quiet(
    workers: Workers, producer: Producer
) -> None:
    """A minute is twelve of redis-py's socket timeouts."""
    worker = workers.start("rewards", "other")
    producer.send([{}])
    producer.collect(1)
    before = workers.log(worker)
    time.sleep(60)

    assert workers.log(worker) == before
    assert worker.poll() is None
    producer.send([{}])
    assert producer.collect(2)
