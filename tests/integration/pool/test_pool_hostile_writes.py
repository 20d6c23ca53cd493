"""Whoever writes to Redis gets no code run, no request sent and no memory eaten."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pool_support import Producer, Workers, await_true
from rq import Callback
from rq.webhook import Webhook

from queue_client import Kind, Output, Trajectory, protocol
from queue_client.batch import TrajectoryBatch
from queue_client.wire import Serializer, encode_batch
from worker.pool.job import _CHECKS

QUICK = {"heartbeat_s": 1, "expiry_s": 4, "sweep_s": 1}
MB = 1 << 20


class Touch:
    """Unpickling it touches a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.path}",))


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """A file that must not come to be."""
    path = tmp_path / "executed"
    yield path
    assert not path.exists(), "something written to Redis was executed"


@pytest.fixture
def poison(mark: Path) -> bytes:
    return pickle.dumps(Touch(mark))


def payload(rows: int = 1) -> bytes:
    batch = [Trajectory(outputs=[Output(text="x")], uid=f"row{n}") for n in range(rows)]
    return encode_batch(TrajectoryBatch.pad(batch))


def reference(producer: Producer, rows: int = 1) -> protocol.Reference:
    return protocol.Reference(protocol.new_job_id(producer.id), rows, 0, producer.redis_ms())


def check_alive(workers: Workers, producer: Producer) -> None:
    """The worker scores on, and it is the same process."""
    job = producer.send([{}] * 3, uid="alive")

    def is_scored() -> bool:
        producer.read()
        return all((job, row) in producer.outcomes for row in range(3))

    await_true(is_scored)
    assert [worker.poll() for worker in workers.all] == [None] * len(workers.all)


def test_only_registered_functions_run(
    workers: Workers, producer: Producer, mark: Path, connection: redis.Redis
) -> None:
    workers.start()
    refused = {}
    for function in ("os.system", "builtins.eval", "subprocess.check_output", "worker.pool.jobs"):
        wanted = reference(producer)
        producer.enqueue(wanted, payload(), function=function, args=(f"touch {mark}",))
        refused[wanted.job_id] = function

    for job_id, function in refused.items():
        kind, message = producer.await_end(job_id)
        assert kind == Kind.BAD_INPUT
        assert function in message
        assert producer.status(job_id) == "failed"
        assert connection.zscore("rq:failed:rewards", job_id)
    check_alive(workers, producer)


def test_callbacks_and_webhooks_are_refused(workers: Workers, producer: Producer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = threading.Event()

        def accept() -> None:
            try:
                listener.accept()[0].close()
                asked.set()
            except OSError:
                return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        workers.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        changes: list[dict[str, Any]] = [
            {"on_success": Callback("os.system")},
            {"on_failure": Callback("os.system")},
            {"on_stopped": Callback("os.system")},
            {"webhooks": [Webhook(url, "failed"), Webhook(url, "finished")]},
        ]
        for change in changes:
            wanted = reference(producer)
            producer.enqueue(wanted, payload(), **change)
            _, message = producer.await_end(wanted.job_id)
            assert "is never run by this pool" in message
        check_alive(workers, producer)
        assert not asked.is_set()
    thread.join(5)


@pytest.mark.parametrize("garbage", [b"\xff\xfe\x00 garbage", b"garbage", b"9" * 400])
def test_each_garbled_field_fails_its_job_alone(
    workers: Workers, producer: Producer, connection: redis.Redis, garbage: bytes
) -> None:
    text = {"description", "group_id", "worker_name", "rate_limit_key", "dependency_id"}
    fields = sorted({*_CHECKS, "data"} - (text if garbage != b"\xff\xfe\x00 garbage" else set()))
    if garbage.isdigit():  # a number is what these hold
        fields = [name for name in fields if name.endswith("_at") or name in ("data", "status")]
    jobs = {}
    for name in fields:
        wanted = reference(producer)
        producer.enqueue(wanted, payload())
        connection.hset(f"rq:job:{wanted.job_id}", name, garbage)
        jobs[name] = wanted.job_id
    workers.start(**QUICK)

    for name, job_id in jobs.items():
        kind, message = producer.await_end(job_id)
        assert kind == Kind.BAD_INPUT
        assert message.startswith((f"{name}:", "data:")), message
        assert producer.status(job_id) == "failed"
    check_alive(workers, producer)


def test_jobs_of_another_kind_fail_with_the_reason(
    workers: Workers, producer: Producer, connection: redis.Redis, poison: bytes
) -> None:
    def refused(said: str, body: bytes | None, rows: int = 1, **changes: Any) -> None:
        wanted = reference(producer, rows)
        producer.enqueue(wanted, body, **changes)
        kind, message = producer.await_end(wanted.job_id)
        assert kind == Kind.BAD_INPUT
        assert said in message

    workers.start()
    good = reference(producer).args()[0]
    refused("payload: is missing", None)
    refused("payload", poison)
    refused("payload", b"")
    refused("payload", payload()[:-3])
    refused("2 rows expected (got 1)", payload(), rows=2)
    refused("args", payload(), args=())
    refused("args.v", payload(), args=({**good, "v": 2},))
    refused("args.rows", payload(), args=({**good, "rows": 10**9},))
    refused("args.payload", payload(), args=(good,))
    refused("no keyword arguments", payload(), kwargs={"shell": True})
    foreign = reference(producer)
    producer.enqueue(foreign, payload())
    stock = pickle.dumps((protocol.SCORE_FUNCTION, None, foreign.args(), {}))
    connection.hset(f"rq:job:{foreign.job_id}", "data", zlib.compress(stock))
    with pytest.raises(KeyError):
        producer.await_end(foreign.job_id, timeout_s=0)
    check_alive(workers, producer)


def test_pickles_everywhere_are_bytes(
    workers: Workers, producer: Producer, connection: redis.Redis, poison: bytes
) -> None:
    for name in ("meta", "result", "exc_info", "data", "description", "webhooks", "new"):
        wanted = reference(producer)
        producer.enqueue(wanted, payload())
        connection.hset(f"rq:job:{wanted.job_id}", name, poison)
    wanted = reference(producer)
    producer.enqueue(wanted, payload(3), args=wanted.args())
    keys = [protocol.attempts_key(wanted.job_id), protocol.outcomes_key(wanted.job_id)]
    for key in keys:
        connection.hset(key, mapping={"0": poison, poison.hex(): poison})
        connection.expire(key, 100)
    connection.sadd(protocol.cancel_key(wanted.job_id), poison)
    connection.expire(protocol.cancel_key(wanted.job_id), 100)
    connection.xadd(f"rq:results:{wanted.job_id}", {"type": 1, "return_value": poison})
    connection.expire(f"rq:results:{wanted.job_id}", 100)
    connection.rpush("rq:queue:rewards", poison, b"\xff\xff", "no such job")
    connection.rpush("rq:queue:rewards:intermediate", poison, "gone")
    connection.zadd("rq:wip:rewards", {poison: 1, "gone:gone": 1, ":": 1, "a:b:c": 1})
    connection.sadd("rq:workers:rewards", poison)
    connection.sadd("rq:workers", poison)
    for worker in (workers.start(**QUICK), workers.start("rewards", "other", **QUICK)):
        for raw in (poison, b"{}", b"[1]", b'{"command": "stop-job", "job_id": {}}'):
            connection.publish(f"rq:pubsub:{workers.await_listening(worker)}", raw)

    await_true(lambda: connection.zcard("rq:wip:rewards") == 0)
    await_true(lambda: connection.llen("rq:queue:rewards:intermediate") == 0)

    check_alive(workers, producer)
    for command in (("info",), ("info", "-W")):
        env = dict(os.environ, PYTHONPATH=str(Path(__file__).parent))
        line = [sys.executable, "-m", "rq.cli", *command, "-u", workers.url]
        line += ["-w", "worker.PoolWorker", "-j", "worker.PoolJob"]
        subprocess.run(line, env=env, check=True, capture_output=True, timeout=60)


def test_keys_of_the_wrong_type_stop_nobody(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    for key in (
        "rq:wip:rewards",
        "rq:queue:rewards:intermediate",
        "rq:finished:rewards",
        "rq:failed:rewards",
        "rq:canceled:rewards",
        "rq:workers:other",
        "rewardpool:swept:rewards",
        protocol.stats_key("rewards"),
        "rq:job:poisoned",
    ):
        connection.set(key, "poison", ex=300)
    workers.start(**QUICK)
    await_true(lambda: connection.type("rq:wip:rewards") == b"none")
    connection.rpush("rq:queue:rewards", "poisoned")
    wanted = reference(producer, 2)
    producer.enqueue(wanted, payload(2))
    for key in (protocol.attempts_key(wanted.job_id), protocol.cancel_key(wanted.job_id)):
        connection.set(key, "poison", ex=300)
    connection.set(f"rq:executions:{wanted.job_id}", "poison", ex=300)

    producer.collect(2)

    check_alive(workers, producer)


def peak_memory(pid: int) -> int:
    """The most memory a process ever held, bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_bomb_does_not_go_off(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    worker = workers.start()
    check_alive(workers, producer)
    normal = peak_memory(worker.pid)
    bomb = zlib.compress(b"\x00" * (300 * MB), 9)
    assert len(bomb) < 400_000
    for name in ("data", "exc_info", "meta", "result"):
        wanted = reference(producer)
        producer.enqueue(wanted, payload())
        connection.hset(f"rq:job:{wanted.job_id}", name, bomb)
    nested = reference(producer)
    producer.enqueue(nested, payload())
    connection.hset(f"rq:job:{nested.job_id}", "data", zlib.compress(bomb[: 1 << 19]))
    body = reference(producer)
    producer.enqueue(body, bomb)
    producer.await_status(body.job_id, "failed")

    check_alive(workers, producer)
    assert peak_memory(worker.pid) - normal < 200 * MB
    assert Serializer.loads(Serializer.dumps([1])) == [1]
