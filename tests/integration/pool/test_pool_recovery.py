"""Workers that die, freeze or leave: every row comes back once, and nothing is paid for twice."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import pytest
from pool_support import Producer, Workers, await_true

from queue_client import Kind, protocol

#: Short times, so that a test does not wait for the real ones; `chaos` runs with those.
QUICK = {"heartbeat_s": 1, "expiry_s": 4, "sweep_s": 1}


HANGS_ONCE = {"do": "sleep", "s": 300, "only_first": True}


def in_flight(workers: Workers) -> int:
    return sum(workers.starts().values())


def test_a_killed_workers_jobs_run_elsewhere(workers: Workers, producer: Producer) -> None:
    first = workers.start(**QUICK)
    done = producer.send([{}, {}])
    producer.collect(2)
    slow = [producer.send([{}, HANGS_ONCE], uid=f"slow{n}-") for n in range(50)]
    producer.collect(52)
    await_true(lambda: in_flight(workers) == 102)
    second = workers.start(**QUICK)
    first.kill()

    outcomes = producer.collect(102, timeout_s=60)

    assert producer.copies == 0
    assert all(outcome.ok for outcome in outcomes.values())
    assert outcomes[slow[0], 1].attempts == 2
    starts = workers.starts()
    assert all(starts[f"slow{n}-0"] == 1 for n in range(50)), "a scored row was scored again"
    assert all(starts[f"slow{n}-1"] == 2 for n in range(50))
    assert second.poll() is None
    producer.await_status(done, "finished")


def test_only_the_row_that_kills_its_worker_is_lost(workers: Workers, producer: Producer) -> None:
    job = producer.send(
        [{"do": "die"} if n == 17 else {"do": "sleep", "s": 0.2} for n in range(64)]
    )
    end = time.monotonic() + 90
    deaths = 0
    while len(producer.outcomes) < 64 and time.monotonic() < end:
        current = workers.start(wait=False, **QUICK)
        while current.poll() is None and len(producer.outcomes) < 64:
            producer.live()
            producer.read(block_ms=100)
        deaths += current.poll() == -signal.SIGKILL

    outcomes = producer.collect(64, timeout_s=1)

    kinds = Counter(outcome.kind for outcome in outcomes.values())
    assert kinds == {None: 63, Kind.WORKER_LOST: 1}
    assert outcomes[job, 17].attempts == 3
    assert deaths == 3
    assert producer.copies == 0


def test_a_frozen_workers_late_outcome_is_dropped(workers: Workers, producer: Producer) -> None:
    first = workers.start(**QUICK)
    job = producer.send([{"do": "sleep", "s": 2}])
    await_true(lambda: in_flight(workers) == 1)
    os.kill(first.pid, signal.SIGSTOP)
    workers.start(**QUICK)

    producer.collect(1)
    os.kill(first.pid, signal.SIGCONT)
    await_true(lambda: "execution lost" in workers.log(first))
    time.sleep(0.2)
    producer.read(block_ms=200)

    assert producer.copies == 0
    assert producer.outcomes[job, 0].attempts == 2
    again = producer.send([{}] * 8)
    producer.collect(9)
    producer.await_status(again, "finished")
    assert first.poll() is None


def test_sigterm_finishes_what_is_in_flight(workers: Workers, producer: Producer) -> None:
    worker = workers.start()
    for number in range(100):
        producer.send([{"do": "sleep", "s": 1.5}], uid=f"{number}-")
    await_true(lambda: in_flight(workers) == 100)
    worker.terminate()
    late = producer.send([{}])

    producer.collect(100)

    assert worker.wait(30) == 0
    assert set(workers.starts().values()) == {1}
    assert producer.status(late) == "queued"
    assert producer.connection.smembers("rq:workers") == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_is_a_requested_stop(
    workers: Workers, producer: Producer, number: int
) -> None:
    job = producer.send([{}])
    loading = workers.start(wait=False, pause="start")
    await_true((workers.folder / "runs.txt.paused").exists)
    loading.send_signal(number)

    assert loading.wait(30) == 0

    assert producer.status(job) == "queued"


def test_a_second_sigterm_puts_everything_back_unspent(
    workers: Workers, producer: Producer
) -> None:
    worker = workers.start()
    jobs = [producer.send([{"do": "sleep", "s": 300}, {}], uid=f"{n}-") for n in range(100)]
    producer.collect(100)
    await_true(lambda: in_flight(workers) == 200)
    worker.terminate()
    time.sleep(1.2)
    worker.terminate()

    assert worker.wait(30) == 0

    assert [producer.status(job) for job in jobs] == ["queued"] * 100
    assert producer.connection.llen("rq:queue:rewards") == 100
    assert producer.connection.zcard("rq:wip:rewards") == 0
    # Nothing was counted: a worker which allows a single start still runs them.
    for job in jobs:
        producer.connection.sadd(f"rewardpool:job:{{{job}}}:cancelled", "1")
        producer.connection.expire(f"rewardpool:job:{{{job}}}:cancelled", 60)
    workers.start(max_attempts=1)
    await_true(lambda: in_flight(workers) == 300)


def test_after_its_deadline_a_warm_stop_puts_rows_back(
    workers: Workers, producer: Producer
) -> None:
    worker = workers.start(stop_s=1, concurrency=2)
    job = producer.send([{"do": "sleep", "s": 0.1}] + [{"do": "sleep", "s": 300}] * 3)
    producer.collect(1)
    worker.terminate()

    assert worker.wait(30) == 0

    assert producer.status(job) == "queued"
    assert not producer.connection.exists(f"rewardpool:job:{{{job}}}:attempts")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("point", "queues"),
    [("parked", ("rewards",)), ("parked", ("other", "rewards")), ("taken", ("rewards",))],
)
def test_a_worker_ended_between_taking_and_starting_loses_nothing(
    workers: Workers, producer: Producer, point: str, end: int, queues: tuple[str, ...]
) -> None:
    first = workers.start(*queues, pause=point, **QUICK)
    paused = workers.folder / "runs.txt.paused"
    jobs: list[str] = []

    def is_caught() -> bool:  # an id that comes between two waits is not parked at all
        if len(producer.outcomes) == 2 * len(jobs):
            await_true(lambda: producer.connection.info("clients")["blocked_clients"] > 0)
            jobs.append(producer.send([{}, {}], uid=f"{len(jobs)}-"))
        producer.read(block_ms=50)
        return paused.exists()

    await_true(is_caught)
    first.send_signal(end)
    assert first.wait(30) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
    second = workers.start(*queues, **QUICK)

    producer.collect(2 * len(jobs))

    assert producer.copies == 0
    assert set(workers.starts().values()) == {1}
    producer.await_status(jobs[-1], "finished")
    assert second.poll() is None


@pytest.mark.parametrize("lost", ["take", "deliver"])
def test_a_lost_answer_costs_nothing(workers: Workers, producer: Producer, lost: str) -> None:
    """The script ran, the connection broke before its answer came."""
    worker = workers.start(pause=f"lost {lost}", **QUICK)
    job = producer.send([{}, {}])

    outcomes = producer.collect(2)

    assert producer.copies == 0
    assert [outcome.attempts for outcome in outcomes.values()] == [1, 1]
    assert workers.starts() == {"row0": 1, "row1": 1}
    producer.await_status(job, "finished")
    assert worker.poll() is None
    await_true((workers.folder / "runs.txt.paused").exists)
    assert worker.poll() is None


def test_a_job_that_kills_workers_before_it_starts_is_given_up(
    workers: Workers, producer: Producer
) -> None:
    job = protocol.new_job_id(producer.id)
    attempts = protocol.attempts_key(job)
    producer.connection.hset(attempts, mapping={"*": 1, "takes": 3})
    producer.connection.expire(attempts, 60)
    producer.enqueue(protocol.Reference(job, 3), b"what kills decoders")
    workers.start()

    outcomes = producer.collect(3)

    assert {outcome.kind for outcome in outcomes.values()} == {Kind.WORKER_LOST}
    producer.await_status(job, "finished")


def test_a_busy_loop_keeps_its_jobs(workers: Workers, producer: Producer) -> None:
    workers.start(heartbeat_s=0.5, expiry_s=3, sweep_s=0.5)
    workers.start(heartbeat_s=0.5, expiry_s=3, sweep_s=0.5)
    producer.send([{"do": "spin", "s": 6}])

    producer.collect(1)

    assert sum(workers.starts().values()) == 1


def test_a_frozen_loop_leaves_its_jobs_and_ends(workers: Workers, producer: Producer) -> None:
    first = workers.start(heartbeat_s=0.5, expiry_s=2, sweep_s=0.5, frozen_s=1.5)
    job = producer.send([{"do": "spin", "s": 60, "only_first": True}])
    await_true(lambda: in_flight(workers) == 1)

    assert first.wait(40) == 70

    workers.start(heartbeat_s=0.5, expiry_s=2, sweep_s=0.5, frozen_s=30)
    assert producer.collect(1)[job, 0].attempts == 2
