"""Each private name of RQ 3.0 that the pool leans on; another RQ fails here, loudly, first."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from importlib.metadata import version

import fakeredis
import pytest
import rq.serializers
from rq import Queue
from rq.command import PUBSUB_CHANNEL_TEMPLATE, parse_payload
from rq.connections import parse_connection
from rq.executions import WORKER_EXECUTIONS_KEY_TEMPLATE, Execution, ExecutionRegistry
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job, JobStatus
from rq.registry import (
    CanceledJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    StartedJobRegistry,
)
from rq.results import Result
from rq.scheduler import RQScheduler
from rq.suspension import WORKERS_SUSPENDED
from rq.timeouts import BaseDeathPenalty
from rq.utils import str_to_date, utcformat
from rq.worker.base import BaseWorker
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY, register

from queue_client.wire import Serializer
from worker.pool import names
from worker.pool.job import _CHECKS, PoolJob
from worker.pool.safety import remove_pickle


@pytest.fixture
def fake() -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis()


def test_rq_is_the_version_this_was_written_for() -> None:
    assert version("rq").startswith("3.0.")


def test_keys_are_where_rq_keeps_them(fake: fakeredis.FakeRedis) -> None:
    queue = Queue("q", connection=fake, serializer=Serializer)
    job = Job("j", connection=fake, serializer=Serializer)
    job.origin = "q"
    execution = Execution("e", "j", fake, worker_name="w")
    assert names.queue_key("q") == queue.key
    assert names.intermediate_key("q") == queue.intermediate_queue_key
    assert names.intermediate_key("q") == IntermediateQueue(queue.key, fake).key
    first_seen = IntermediateQueue(queue.key, fake).get_first_seen_key("j")
    assert first_seen == f"{names.intermediate_key('q')}:first_seen:j"
    assert names.wip_key("q") == StartedJobRegistry(queue=queue).key == job.started_job_registry.key
    assert names.registry_key("finished", "q") == FinishedJobRegistry(queue=queue).key
    assert names.registry_key("failed", "q") == FailedJobRegistry(queue=queue).key
    assert names.registry_key("canceled", "q") == CanceledJobRegistry(queue=queue).key
    assert names.job_key("j") == job.key
    assert names.dependents_key("j") == job.dependents_key
    assert names.results_key("j") == Result.get_key("j")
    assert names.execution_key("j", "e") == execution.key
    assert names.executions_key("j") == ExecutionRegistry("j", fake).key
    assert names.holds_key("w") == execution.worker_executions_key
    assert names.holds_key("w") == WORKER_EXECUTIONS_KEY_TEMPLATE.format("w")
    assert names.rq_worker_key("w") == BaseWorker.redis_worker_namespace_prefix + "w"
    assert names.listeners_key("q") == WORKERS_BY_QUEUE_KEY % "q"
    assert names.WORKERS == REDIS_WORKER_KEYS
    assert names.SUSPENDED == WORKERS_SUSPENDED
    assert PUBSUB_CHANNEL_TEMPLATE % "w" == "rq:pubsub:w"


def test_an_execution_is_registered_as_our_script_does(fake: fakeredis.FakeRedis) -> None:
    job = Job("j", connection=fake, serializer=Serializer)
    job.origin = "q"
    with fake.pipeline() as pipeline:
        execution = Execution.create(job, 20, pipeline, worker_name="w")
        pipeline.execute()
    member = f"j:{execution.id}".encode()
    assert fake.zrange("rq:wip:q", 0, -1) == [member]
    assert fake.smembers(names.holds_key("w")) == {member}
    assert set(fake.hgetall(execution.key)) == {
        b"id", b"job_id", b"created_at", b"last_heartbeat", b"worker_name",
    }  # fmt: skip
    assert fake.zrange(names.executions_key("j"), 0, -1) == [execution.id.encode()]


def test_a_result_is_written_as_our_script_does(fake: fakeredis.FakeRedis) -> None:
    job = Job("j", connection=fake, serializer=Serializer)
    now = datetime.now(UTC)
    facts = {"worker_name": "w", "execution_id": "e", "execution_started_at": now,
             "execution_ended_at": now, "ttl": 9}  # fmt: skip
    Result.create(job, Result.Type.SUCCESSFUL, return_value={"rows": 1}, **facts)
    Result.create(job, Result.Type.FAILED, exc_string="why", **facts)
    (_, good), (_, bad) = fake.xrange(names.results_key("j"))
    shared = {b"type", b"worker_name", b"execution_id", b"execution_started_at",
              b"execution_ended_at"}  # fmt: skip
    assert set(good) == {*shared, b"return_value"}
    assert set(bad) == {*shared, b"exc_string"}
    assert (good[b"type"], bad[b"type"]) == (b"1", b"2")


def test_a_worker_is_registered_as_our_script_expects(fake: fakeredis.FakeRedis) -> None:
    worker = BaseWorker(["q"], name="w", connection=fake, serializer=Serializer)
    worker.register_birth()
    known = fake.hgetall(worker.key)
    assert {b"birth", b"last_heartbeat", b"queues", b"pid", b"hostname", b"version"} <= set(known)
    worker.set_state("busy")
    assert fake.hget(worker.key, "state") == b"busy"
    worker.increment_successful_job_count()
    worker.increment_failed_job_count()
    assert fake.hget(worker.key, "successful_job_count") == b"1"
    assert fake.hget(worker.key, "failed_job_count") == b"1"
    with fake.pipeline() as pipeline:
        register(worker, pipeline)
        pipeline.execute()
    worker.register_death()
    assert fake.smembers(names.WORKERS) == set()


def test_every_field_that_rq_restores_is_checked() -> None:
    source = inspect.getsource(Job.restore)
    restored = {part.split("'")[0] for part in source.split("obj.get('")[1:]}
    restored |= {part.split("'")[0] for part in source.split("obj['")[1:]}
    restored |= {"success_callback_timeout", "failure_callback_timeout", "stopped_callback_timeout"}
    restored -= {"data", "exc_info", "result"}  # read by PoolJob itself, bounded, or not at all
    assert restored <= set(_CHECKS)


def test_statuses_are_those_our_script_knows() -> None:
    known = {"created", "queued", "finished", "failed", "started", "deferred", "scheduled",
             "stopped", "canceled", "ready_to_enqueue", "rate_limited"}  # fmt: skip
    assert {status.value for status in JobStatus} == known


@pytest.mark.parametrize(
    ("owner", "attributes"),
    [
        (
            BaseWorker,
            "work bootstrap teardown register_birth register_death subscribe unsubscribe "
            "handle_payload _pubsub_exception_handler serialize queue_names execute_job "
            "death_penalty_class job_class redis_workers_keys _set_connection",
        ),
        (Job, "restore perform send_webhooks success_callback failure_callback stopped_callback"),
        (Queue, "enqueue_many enqueue_dependents prepare_data"),
        (RQScheduler, "acquire_locks work request_stop"),
        (BaseDeathPenalty, "setup_death_penalty cancel_death_penalty"),
    ],
)
def test_rq_has_the_names_we_override_or_call(owner: type, attributes: str) -> None:
    missing = [name for name in attributes.split() if not hasattr(owner, name)]
    assert not missing


def test_worker_attributes_we_set_are_rqs(fake: fakeredis.FakeRedis) -> None:
    worker = BaseWorker(["q"], connection=fake, serializer=Serializer)
    for name in ("worker_ttl", "maintenance_interval", "_shutdown_requested_date", "hostname",
                 "pid", "name", "queues", "serializer", "last_heartbeat",
                 "_dequeue_strategy"):  # fmt: skip
        assert hasattr(worker, name), name
    parameters = inspect.signature(BaseWorker.work).parameters
    assert list(parameters) == [
        "self", "burst", "logging_level", "date_format", "log_format", "max_jobs",
        "max_idle_time", "with_scheduler", "dequeue_strategy",
    ]  # fmt: skip


def test_times_and_commands_travel_as_we_read_them() -> None:
    moment = datetime.now(UTC)
    assert str_to_date(utcformat(moment)) == moment
    assert parse_payload({"data": b'{"command": "shutdown"}'}) == {"command": "shutdown"}


def test_connections_can_be_made_again(fake: fakeredis.FakeRedis) -> None:
    import redis

    made = redis.Redis.from_url("redis://user:secret@127.0.0.1:1/3", socket_timeout=9)
    _, _, kwargs = parse_connection(made)
    assert kwargs["db"] == 3
    assert kwargs["password"] == "secret"
    redis.ConnectionPool(**kwargs)


def test_no_name_of_rqs_default_serializer_unpickles() -> None:
    remove_pickle()
    default = rq.serializers.resolve_serializer(None)
    named = rq.serializers.resolve_serializer("pickle")
    for serializer in (default, named, rq.serializers.PickleSerializer):
        assert serializer.loads(serializer.dumps([1, b"x"])) == [1, b"x"]
        with pytest.raises(Exception, match=r".") as caught:
            serializer.loads(b"\x80\x05N.")
        assert not isinstance(caught.value, AssertionError)
    assert PoolJob("j", connection=fakeredis.FakeRedis()).serializer is default
