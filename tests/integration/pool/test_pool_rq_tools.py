"""It stays RQ: `rq`'s own commands, options and registries work with the pool's worker."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta

import pytest
import redis
from pool_support import Producer, Workers, await_true
from rq import Queue
from rq.command import (
    send_kill_horse_command,
    send_shutdown_command,
    send_stop_execution_command,
    send_stop_job_command,
)
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry
from rq.results import Result
from rq.worker import Worker

from queue_client import Kind, protocol
from queue_client.wire import Serializer
from worker.pool.job import PoolJob
from worker.pool.worker import PoolWorker


def rq(workers: Workers, *command: str) -> str:
    """Run `rq COMMAND`; returns what it printed."""
    line = [sys.executable, "-m", "rq.cli", *command, "-u", workers.url]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


def test_rq_info_counts_what_runs(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    worker = workers.start()
    name = workers.await_listening(worker)
    for number in range(3):
        producer.send([{"do": "sleep", "s": 300}], uid=f"{number}-")
    await_true(lambda: sum(workers.starts().values()) == 3)

    said = rq(workers, "info")

    assert "rewards" in said
    assert "3 executing" in said
    assert name in said
    assert "busy" in said
    hydrated = next(iter(Worker.all(connection=connection)))
    assert hydrated.current_execution_count == 3
    assert len(hydrated.get_current_executions()) == 3
    started = StartedJobRegistry("rewards", connection=connection)
    assert len(started.get_job_and_execution_ids(cleanup=False)) == 3


def test_rq_info_fails_no_job_of_a_dead_worker(workers: Workers, producer: Producer) -> None:
    worker = workers.start(heartbeat_s=0.5, expiry_s=2)
    job_id = producer.send([{"do": "sleep", "s": 300, "only_first": True}])
    await_true(lambda: sum(workers.starts().values()) == 1)
    worker.kill()
    worker.wait()

    def is_put_back() -> bool:  # stock RQ gives up what is overdue whenever somebody counts
        rq(workers, "info")
        return producer.status(job_id) != "started"

    await_true(is_put_back)
    assert producer.status(job_id) == "queued"

    workers.start()
    assert producer.collect(1)[job_id, 0].attempts == 2


def test_a_finished_job_looks_as_rq_leaves_it(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    workers.start()
    job_id = producer.send([{}, {"fail": "timeout"}])
    producer.collect(2)
    producer.await_status(job_id, "finished")

    job = Job.fetch(job_id, connection=connection, serializer=Serializer)
    assert job.is_finished
    assert job.started_at <= job.ended_at
    assert job.worker_name
    result = job.latest_result()
    assert result.type is Result.Type.SUCCESSFUL
    assert result.return_value == {"rows": 2, "scored": 1, "failed": 1}
    assert result.execution_id
    assert job_id in FinishedJobRegistry("rewards", connection=connection)
    assert 0 < connection.ttl(job.key) <= protocol.RESULT_TTL_S
    assert not connection.exists(protocol.payload_key(job_id))
    worker = next(iter(Worker.all(connection=connection)))
    assert (worker.successful_job_count, worker.failed_job_count) == (1, 0)


def test_suspended_workers_take_nothing(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    workers.start()
    workers.start("rewards", "other")
    rq(workers, "suspend", "--duration", "100")
    time.sleep(1.5)  # what waits on the queue already is given back when it gets a job
    job = producer.send([{}])
    time.sleep(1.5)
    assert producer.status(job) == "queued"
    assert connection.llen("rq:queue:rewards") == 1

    rq(workers, "resume")

    assert producer.collect(1)[job, 0].ok


def test_stop_job_and_stop_execution_end_a_job(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    worker = workers.start()
    jobs = [producer.send([{"do": "sleep", "s": 300}, {}], uid=f"{n}-") for n in range(3)]
    producer.collect(3)
    await_true(lambda: sum(workers.starts().values()) == 6)

    send_kill_horse_command(connection, workers.await_listening(worker))
    send_stop_job_command(connection, jobs[0], serializer=Serializer)
    (execution,) = Job.fetch(jobs[1], connection=connection, serializer=Serializer).get_executions()
    send_stop_execution_command(connection, jobs[1], execution.id)

    for job_id in jobs[:2]:
        kind, message = producer.await_end(job_id)
        assert kind == Kind.CANCELLED
        assert "stop" in message
        assert producer.outcomes[job_id, 0].kind is Kind.CANCELLED
        assert producer.status(job_id) == "stopped"
        assert job_id in FailedJobRegistry("rewards", connection=connection)
    assert producer.status(jobs[2]) == "started"


def test_a_requeued_job_is_scored(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    workers.start()
    job_id = producer.send([{"do": "sleep", "s": 300, "only_first": True}, {}])
    producer.collect(1)
    payload = connection.get(protocol.payload_key(job_id))
    assert payload is not None
    send_stop_job_command(connection, job_id, serializer=Serializer)
    producer.await_end(job_id)
    assert connection.get(protocol.payload_key(job_id)) == payload

    connection.hdel(protocol.outcomes_key(job_id), "0")  # as `rewardpool` requeues failed rows
    rq(workers, "requeue", "-a", "--queue", "rewards", "-S", "queue_client.wire.Serializer")

    await_true(lambda: connection.hlen(protocol.outcomes_key(job_id)) == 2)
    producer.await_status(job_id, "finished")
    assert workers.starts()["row1"] == 1


def test_shutdown_by_command_is_a_requested_stop(workers: Workers, connection: redis.Redis) -> None:
    worker = workers.start()
    send_shutdown_command(connection, workers.await_listening(worker))

    assert worker.wait(30) == 0


def test_burst_max_jobs_and_max_idle_time_end_a_worker(
    workers: Workers, producer: Producer
) -> None:
    jobs = [producer.send([{}]) for _ in range(5)]
    some = workers.start(options=("--max-jobs", "2"), wait=False)
    assert some.wait(30) == 0
    assert [producer.status(job) for job in jobs].count("finished") == 2

    rest = workers.start("rewards", "other", options=("--burst",), wait=False)
    assert rest.wait(30) == 0
    assert {producer.status(job) for job in jobs} == {"finished"}

    idle = workers.start(options=("--max-idle-time", "1"), wait=False)
    assert idle.wait(30) == 0


def test_wrong_settings_are_one_line_and_exit_code_2(workers: Workers) -> None:
    worker = workers.start(wait=False, concurency=3)
    assert worker.wait(30) == 2
    said = workers.log(worker)
    assert "worker.concurency: unknown key, did you mean 'concurrency'?" in said
    assert "Traceback" not in said

    slow = workers.start(wait=False, heartbeat_s=15)
    assert slow.wait(30) == 2
    assert "worker.heartbeat_s" in workers.log(slow)


def test_a_killed_workers_name_can_be_used_again(workers: Workers, connection: redis.Redis) -> None:
    first = workers.start(options=("--name", "steady"))
    second = workers.start(options=("--name", "steady"), wait=False)
    assert second.wait(30) == 1
    assert "active worker named 'steady' already" in workers.log(second)
    first.kill()
    first.wait()

    third = workers.start(options=("--name", "steady"))

    assert workers.await_listening(third) == "steady"


def test_an_expired_registration_is_written_again(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    worker = workers.start(heartbeat_s=0.3)
    key = f"rq:worker:{workers.await_listening(worker)}"
    with connection.pipeline() as pipeline:
        pipeline.delete(key).srem("rq:workers", key).execute()

    await_true(lambda: connection.hexists(key, "birth"))

    assert connection.smembers("rq:workers") == {key.encode()}
    assert 0 < connection.ttl(key) <= 20
    assert connection.hget(key, "queues") == b"rewards"
    producer.send([{}])
    producer.collect(1)


def test_queues_are_served_in_their_order(workers: Workers, new_producer: type[Producer]) -> None:
    low, high = new_producer("low"), new_producer("high")
    for number in range(6):
        low.send([{}], uid=f"low{number}-")
    for number in range(6):
        high.send([{}], uid=f"high{number}-")
    workers.start("high", "low", concurrency=1)

    high.collect(6)
    low.collect(6)

    order = [line.split("-")[0] for line in workers.runs.read_text().splitlines()]
    assert order == [f"high{n}" for n in range(6)] + [f"low{n}" for n in range(6)]


@pytest.mark.parametrize("strategy", ["round_robin", "random"])
def test_other_strategies_serve_every_queue(
    workers: Workers, new_producer: type[Producer], strategy: str
) -> None:
    queues = ("a", "b", "c")
    producers = [new_producer(name) for name in queues]
    workers.start(*queues, options=("--dequeue-strategy", strategy))
    for producer in producers:
        for _ in range(5):
            producer.send([{}])
    for producer in producers:
        assert len(producer.collect(5)) == 5


def test_several_idle_queues_are_heard_at_once(
    workers: Workers, new_producer: type[Producer]
) -> None:
    queues = ("a", "b", "c")
    producers = [new_producer(name) for name in queues]
    workers.start(*queues)
    for _ in range(5):
        for producer in producers:
            producer.send([{}])
            producer.collect(len(producer.outcomes) + 1)
    assert sum(workers.starts().values()) == 15


def test_scheduled_jobs_run_where_a_scheduler_does(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    worker = workers.start(options=("--with-scheduler",))
    job_id = producer.send([{}])
    producer.collect(1)
    later = protocol.new_job_id(producer.id)
    connection.set(protocol.payload_key(later), b"", ex=60)
    queue = Queue("rewards", connection=connection, serializer=Serializer)
    queue.enqueue_in(
        timedelta(seconds=1),
        protocol.SCORE_FUNCTION,
        *protocol.Reference(later, 1).args(),
        job_id=later,
        failure_ttl=60,
    )
    connection.expire(f"rq:job:{later}", 60)

    assert "payload" in producer.await_end(later)[1]

    worker.terminate()
    assert worker.wait(30) == 0
    with pytest.raises(NoSuchJobError):
        PoolJob.fetch("nobody", connection=connection)
    assert isinstance(PoolWorker.all(connection=connection), list)
    assert producer.status(job_id) == "finished"
