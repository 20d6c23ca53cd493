"""What the client writes is what RQ itself would have written."""

from __future__ import annotations

import redis
from client_consumer import rows, until
from rq import Queue
from rq.job import Job, JobStatus
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from queue_client import RewardClient
from queue_client import listeners as listeners_module
from queue_client.jobs import QUEUES_KEY, enqueue_call, job_key, queue_key
from queue_client.protocol import (
    FAILURE_TTL_S,
    RESULT_TTL_S,
    SCORE_FUNCTION,
    Reference,
    payload_key,
)
from queue_client.sender import ENQUEUE
from queue_client.wire import Serializer, decode_batch


def sent(client: RewardClient, connection: redis.Redis) -> str:
    client.submit(rows(3), timeout_s=100)
    until(lambda: connection.llen(queue_key("rewards")) == 1)
    return connection.lindex(queue_key("rewards"), 0).decode()


def test_key_names_are_rqs():
    queue = Queue("rewards", connection=redis.Redis())
    assert queue.key == queue_key("rewards")
    assert Queue.redis_queues_keys == QUEUES_KEY
    assert Job.key_for("x") == job_key("x")
    assert listeners_module.workers_key("rewards") == WORKERS_BY_QUEUE_KEY % "rewards"
    from rq.suspension import WORKERS_SUSPENDED

    assert WORKERS_SUSPENDED == listeners_module.SUSPENDED_KEY


def test_rq_reads_the_job(client, connection):
    job_id = sent(client, connection)
    job = Job.fetch(job_id, connection=connection, serializer=Serializer)
    assert job.func_name == SCORE_FUNCTION
    assert job.instance is None
    assert job.kwargs == {}
    assert job.get_status() == JobStatus.QUEUED
    assert (job.origin, job.timeout) == ("rewards", -1)
    assert (job.result_ttl, job.failure_ttl) == (RESULT_TTL_S, FAILURE_TTL_S)
    assert job.enqueued_at is not None
    assert Reference.read(job_id, job.args).rows == 3
    assert job.description.startswith("score 3 trajectories for ")
    assert len(decode_batch(connection.get(payload_key(job_id)))) == 3
    [queue] = Queue.all(connection=connection)
    assert queue.job_ids == [job_id]


def test_rq_would_have_written_the_same_fields(client, connection):
    ours = connection.hgetall(job_key(sent(client, connection)))
    connection.delete(queue_key("rewards"))
    job = Queue("rewards", connection=connection, serializer=Serializer).enqueue(
        SCORE_FUNCTION, {}, job_timeout=-1, ttl=701, result_ttl=RESULT_TTL_S, failure_ttl=1
    )
    theirs = connection.hgetall(job.key)
    connection.delete(job.key)
    empty = {name for name, value in theirs.items() if not value}
    # an empty field reads like one that is not there; `rows` is ours
    assert set(ours) - {b"rows"} == set(theirs) - empty
    for name in (b"status", b"timeout", b"origin", b"result_ttl"):
        assert ours[name] == theirs[name]
    assert len(ours[b"created_at"]) == len(theirs[b"created_at"])


def test_sending_a_job_again_changes_nothing(client, connection):
    job_id = sent(client, connection)
    link = client._tie.get()
    job = link.flight.get(job_id)
    assert job is not None
    connection.hset(job_key(job_id), "status", "started")
    before = connection.hgetall(job_key(job_id))
    keys, args = enqueue_call(job, link.producer, link.clock)
    assert ENQUEUE(connection, keys, args) == 0
    assert connection.llen(queue_key("rewards")) == 1
    assert connection.hgetall(job_key(job_id)) == before
