"""The scheduler's process and the health checks that containers use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from dashboard_seeds import KEEP_S, store_job, store_worker

from worker.ops import health
from worker.ops.scheduler import move_due

TIMEOUT_S = 60


@pytest.fixture
def scheduler(redis_url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.ops.scheduler", "rewards", "other"],
        env=os.environ | {"REWARDPOOL_REDIS__URL": redis_url}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def eventually(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def schedule(connection: redis.Redis, job_id: str, at: float, **fields: Any) -> None:
    store_job(connection, job_id, registry="scheduled", **fields)
    connection.zadd("rq:scheduled:rewards", {job_id: at})


def test_due_jobs_are_queued_and_the_process_ends_when_told(
    scheduler: subprocess.Popen[str],
    redis_url: str,
    connection: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWARDPOOL_REDIS__URL", redis_url)
    schedule(connection, "due", time.time() - 5)
    schedule(connection, "later", time.time() + 3600)
    eventually(lambda: connection.llen("rq:queue:rewards"))
    assert connection.lrange("rq:queue:rewards", 0, -1) == [b"due"]
    assert connection.zrange("rq:scheduled:rewards", 0, -1) == [b"later"]
    assert connection.hget("rq:job:due", "status") == b"queued"
    assert health.fault(["--scheduler", "rewards"]) is None
    scheduler.send_signal(signal.SIGTERM)
    assert scheduler.wait(TIMEOUT_S) == 0
    assert "no scheduler holds rewards" in str(health.fault(["--scheduler", "rewards"]))


def test_no_job_can_stop_the_scheduler(connection: redis.Redis) -> None:
    """RQ's own builds each due job: a malformed one ends it, a bomb fills it."""
    schedule(connection, "front", 1, enqueue_at_front=1)
    schedule(connection, "bomb", 2, data=zlib.compress(b"a" * (64 << 20)))
    schedule(connection, "nonsense", 3, created_at=b"\xff", timeout="x", status="y")
    schedule(connection, "again", 4, enqueue_at_front_on_retry=1)
    connection.zadd("rq:scheduled:rewards", {"gone": 5})
    connection.hdel("rq:job:again", "ended_at")
    connection.rpush("rq:queue:rewards", "first")
    assert move_due(connection, "rewards") == 4
    queued = connection.lrange("rq:queue:rewards", 0, -1)
    assert queued == [b"front", b"first", b"bomb", b"nonsense", b"again"]
    assert not connection.zcard("rq:scheduled:rewards")
    assert move_due(connection, "rewards") == 0


def test_a_worker_is_healthy_while_it_is_heard_of(
    redis_url: str, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDPOOL_REDIS__URL", redis_url)
    monkeypatch.setattr("socket.gethostname", lambda: "node-1")
    assert health.fault([]) == "no worker of node-1 is registered"
    store_worker(connection, "one")
    assert "was heard of" in str(health.fault([]))
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    connection.hset("rq:worker:one", "last_heartbeat", now)
    connection.expire("rq:worker:one", KEEP_S)
    assert health.fault([]) is None


def test_health_checks_name_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.fault(["ftp://127.0.0.1/x"]) == "ftp://127.0.0.1/x: not an http address"
    monkeypatch.setenv("REWARDPOOL_REDIS__URL", "redis://127.0.0.1:1/0")
    assert health.fault([]) == "Redis: ConnectionError"
    monkeypatch.setenv("REWARDPOOL_WORKER__CONCURENCY", "3")
    assert "concurrency" in str(health.fault([]))
