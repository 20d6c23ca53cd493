"""Work nobody wants any more is not done: cancelled rows, deadlines, silent producers."""

from __future__ import annotations

import time

import redis
from pool_support import Producer, Workers, await_true

from queue_client import Kind, Outcome, protocol
from worker.pool.scripts import Script


def cancel(connection: redis.Redis, job_id: str, *rows: int) -> bytes:
    """What the client does to cancel."""
    keys = [
        f"rq:job:{job_id}",
        "rq:queue:rewards",
        protocol.payload_key(job_id),
        protocol.attempts_key(job_id),
        protocol.cancel_key(job_id),
    ]
    args = [job_id, protocol.CANCEL_TTL_S, protocol.RESULT_TTL_S, *rows]
    answer: bytes = Script("pool_cancel")(connection, keys, args)
    return answer


def kinds(outcomes: dict[tuple[str, int], Outcome]) -> list[Kind | None]:
    return [outcome.kind for _, outcome in sorted(outcomes.items())]


def test_a_cancelled_job_is_taken_off_its_queue(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    job = producer.send([{}] * 4)

    assert cancel(connection, job) == b"REMOVED"
    workers.start()
    other = producer.send([{}])
    producer.collect(1)

    assert producer.status(job) == "canceled"
    assert producer.status(other) in ("started", "finished")
    assert sum(workers.starts().values()) == 1
    assert cancel(connection, job) == b"GONE"


def test_cancelled_rows_stop_and_their_neighbours_go_on(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    workers.start(concurrency=3)
    job = producer.send([{"do": "sleep", "s": 300}, {"do": "sleep", "s": 2}, {}] + [{}] * 3)
    await_true(lambda: workers.starts()["row0"] == 1)

    assert cancel(connection, job, 0) == b"TOLD"

    producer.collect(6)
    assert kinds(producer.outcomes) == [Kind.CANCELLED, None, None, None, None, None]
    producer.await_status(job, "finished")


def test_a_cancelled_job_that_runs_is_stopped(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    workers.start(concurrency=2)
    job = producer.send([{"do": "sleep", "s": 300}] * 4)
    await_true(lambda: sum(workers.starts().values()) == 2)

    assert cancel(connection, job) == b"TOLD"

    producer.collect(4)
    assert kinds(producer.outcomes) == [Kind.CANCELLED] * 4
    assert sum(workers.starts().values()) == 2
    free = producer.send([{}])
    assert producer.collect(5)[free, 0].ok, "the places were given back"


def test_past_the_deadline_nothing_is_scored(workers: Workers, producer: Producer) -> None:
    late = producer.send([{}] * 3, timeout_s=0.001)
    time.sleep(0.1)
    workers.start(concurrency=1)
    running = producer.send([{"do": "sleep", "s": 300}, {}], uid="running", timeout_s=1)

    outcomes = producer.collect(5)

    assert set(kinds(outcomes)) == {Kind.TIMEOUT}
    assert all(outcomes[running, row].retryable for row in (0, 1))
    assert outcomes[late, 0].attempts == 0
    assert workers.starts() == {"running0": 1}


def test_rows_of_a_silent_producer_are_not_scored(
    workers: Workers, producer: Producer, connection: redis.Redis, new_producer: type[Producer]
) -> None:
    gone = new_producer("rewards")
    workers.start(heartbeat_s=0.3)
    running = gone.send([{"do": "sleep", "s": 300}], uid="gone")
    await_true(lambda: workers.starts()["gone0"] == 1)
    connection.delete(protocol.producer_key(gone.id))
    queued = gone.send([{}], uid="queued")

    await_true(lambda: connection.hlen(protocol.outcomes_key(running)) == 1)
    await_true(lambda: connection.hlen(protocol.outcomes_key(queued)) == 1)

    gone.collect(2)
    assert kinds(gone.outcomes) == [Kind.CANCELLED] * 2
    assert workers.starts()["queued0"] == 0
    assert producer.send([{}])
    assert producer.collect(1)


def test_a_raising_row_fails_alone(workers: Workers, producer: Producer) -> None:
    worker = workers.start()
    job = producer.send([{"do": "raise"}, {"do": "exit"}, {"fail": "timeout"}, {}, {"reward": "x"}])

    producer.collect(5)

    failed = [Kind.SCORER_ERROR, Kind.SCORER_ERROR, Kind.TIMEOUT, None, Kind.SCORER_ERROR]
    assert kinds(producer.outcomes) == failed
    assert worker.poll() is None
    producer.await_status(job, "finished")


def test_one_slow_row_holds_nobody_back(workers: Workers, producer: Producer) -> None:
    workers.start()
    job = producer.send([{"do": "sleep", "s": 300}, *[{}] * 63])

    producer.collect(63)

    assert (job, 0) not in producer.outcomes
    assert producer.status(job) == "started"


def test_a_ping_is_answered_without_scoring(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    from queue_client import Output, Trajectory
    from queue_client.batch import TrajectoryBatch
    from queue_client.wire import encode_batch

    workers.start()
    job = protocol.new_job_id(producer.id)
    row = Trajectory(outputs=[Output(text="")], data_source=protocol.PING_SOURCE)
    reference = protocol.Reference(job, 1, 0, producer.redis_ms())
    producer.enqueue(reference, encode_batch(TrajectoryBatch.pad([row])))

    assert producer.collect(1)[job, 0].reward == 0.0
    assert sum(workers.starts().values()) == 0
