"""What other queues were reported for and nothing else here shows; see docs/pool-reports.md."""

from __future__ import annotations

import signal

import psutil
import pytest
import redis
from pool_support import Producer, Workers, await_true
from rq.command import send_shutdown_command

QUICK = {"heartbeat_s": 1, "expiry_s": 4, "sweep_s": 1}


def test_sweeps_of_others_fail_no_slow_start(
    workers: Workers,
    producer: Producer,
    connection: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two full workers sweep while a third is slow between taking an id and starting the job."""
    for number in range(2):
        workers.start(concurrency=1, **QUICK)
        producer.send([{"do": "sleep", "s": 300}], uid=f"busy{number}-")
        await_true(lambda number=number: workers.starts()[f"busy{number}-0"] == 1)
    monkeypatch.setenv("POOL_PAUSE_S", "6")
    workers.start(pause="parked", **QUICK)
    paused = workers.folder / "runs.txt.paused"
    jobs: list[str] = []

    def is_caught() -> bool:  # an id that comes between two waits is not parked at all
        if len(producer.outcomes) == len(jobs):
            await_true(lambda: connection.info("clients")["blocked_clients"] > 0)
            jobs.append(producer.send([{}], uid=f"{len(jobs)}-"))
        producer.read(block_ms=50)
        return paused.exists()

    await_true(is_caught)
    connection.rpush("rq:queue:rewards:intermediate", "a job without a hash")
    await_true(lambda: not connection.llen("rq:queue:rewards:intermediate"))

    producer.collect(len(jobs))

    assert (producer.copies, producer.ends) == (0, {})
    assert set(workers.starts().values()) == {1}
    producer.await_status(jobs[-1], "finished")
    assert [worker.poll() for worker in workers.all] == [None] * 3


def test_a_call_that_holds_pythons_lock_is_run_again_and_counts_once(
    workers: Workers, producer: Producer
) -> None:
    both = [workers.start(heartbeat_s=0.5, expiry_s=2, sweep_s=0.5) for _ in range(2)]
    job = producer.send([{"do": "hold", "s": 12, "only_first": True}])

    producer.collect(1)
    await_true(lambda: any("execution lost" in workers.log(worker) for worker in both))
    producer.read(block_ms=500)

    assert producer.copies == 0
    assert producer.outcomes[job, 0].attempts == 2
    assert [worker.poll() for worker in both] == [None, None]


def test_a_killed_scheduler_is_replaced_and_none_outlives_its_worker(workers: Workers) -> None:
    worker = psutil.Process(workers.start(options=("--with-scheduler",)).pid)
    [scheduler] = worker.children()
    scheduler.send_signal(signal.SIGKILL)
    await_true(lambda: [one for one in worker.children() if one.pid != scheduler.pid])
    [again] = [one for one in worker.children() if one.pid != scheduler.pid]

    worker.kill()

    _, left = psutil.wait_procs([again], timeout=30)
    assert not left


def test_a_url_that_asks_for_text_changes_nothing_for_workers(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    workers.url += "?decode_responses=true"
    first = workers.start(options=("--name", "steady"))
    first.kill()
    first.wait()
    again = workers.start(options=("--name", "steady"))

    job = producer.send([{}, {}])

    assert len(producer.collect(2)) == 2
    producer.await_status(job, "finished")
    send_shutdown_command(connection, "steady")
    assert again.wait(30) == 0
