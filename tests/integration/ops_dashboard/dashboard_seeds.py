"""Jobs, workers and a dashboard without a server, for the dashboard's tests."""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import Any

import redis
from flask.testing import FlaskClient

from queue_client.protocol import worker_key
from queue_client.wire import Serializer
from worker.ops.dashboard.access import Access
from worker.ops.dashboard.app import create_app

KEEP_S = 3600
EVIL = "<script>window.pwned=1</script><img src=x onerror='window.pwned=2'>\"'</pre><b>bold</b>"


class Page:
    """A dashboard without a server: requests go straight into the application."""

    def __init__(self, url: str, access: Access | None = None) -> None:
        self.app = create_app(url, access=access)
        self.client: FlaskClient = self.app.test_client()

    def get(self, path: str, **options: Any) -> Any:
        return self.client.get(path, base_url="http://localhost", **options)

    def post(self, path: str, **options: Any) -> Any:
        return self.client.post(path, base_url="http://localhost", **options)

    def json(self, path: str) -> Any:
        reply = self.get(path)
        assert reply.status_code == 200, reply.data
        return json.loads(reply.data, parse_constant=_no_constant)  # NaN is no JSON

    def close(self) -> None:
        self.app.extensions["rewardpool"].connection.close()


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} in JSON: no browser reads that")


def store_job(
    connection: redis.Redis,
    job_id: str,
    *,
    registry: str = "failed",
    queue: str = "rewards",
    data: bytes | None = None,
    exc: str | None = None,
    result: Any = None,
    **fields: Any,
) -> None:
    """Write one job as RQ and the pool leave it in Redis."""
    made = Serializer.dumps(("worker.pool.jobs.score_batch", None, (), {}))
    stored = {
        "created_at": "2026-01-02T03:04:05.000000Z", "enqueued_at": "2026-01-02T03:04:05.000000Z",
        "ended_at": "2026-01-02T03:05:05.000000Z", "origin": queue, "status": registry,
        "description": f"{job_id}: 4 rows", "data": zlib.compress(made) if data is None else data,
    } | fields  # fmt: skip
    connection.hset(f"rq:job:{job_id}", mapping=stored)
    connection.expire(f"rq:job:{job_id}", KEEP_S)
    connection.sadd("rq:queues", f"rq:queue:{queue}")
    entry: dict[str, Any] = {"type": 2 if exc else 1}
    if exc is not None:
        entry["exc_string"] = base64.b64encode(zlib.compress(exc.encode()))
    if result is not None:
        packed = result if isinstance(result, bytes) else Serializer.dumps(result)
        entry["return_value"] = base64.b64encode(packed)
    connection.xadd(f"rq:results:{job_id}", entry)
    connection.expire(f"rq:results:{job_id}", KEEP_S)
    if registry == "queued":
        connection.rpush(f"rq:queue:{queue}", job_id)
    else:
        connection.zadd(f"rq:{registry}:{queue}", {job_id: 4e9})


def store_worker(connection: redis.Redis, name: str, **fields: Any) -> None:
    """Register one worker."""
    key = f"rq:worker:{name}"
    said = {
        "birth": "2026-01-02T03:04:05.000000Z", "last_heartbeat": "2026-01-02T03:04:05.000000Z",
        "queues": "rewards", "pid": "7", "hostname": "node-1", "state": "busy", "version": "3.0.0",
        "python_version": "3.11", "successful_job_count": "3", "failed_job_count": "1",
    } | fields  # fmt: skip
    connection.hset(key, mapping=said)
    connection.expire(key, KEEP_S)
    connection.sadd("rq:workers", key)
    connection.sadd(f"{key}:executions", f"job-of-{name}:run")
    connection.expire(f"{key}:executions", KEEP_S)
    connection.hset(worker_key(name), mapping={"in_flight": 12, "concurrency": 256})
    connection.expire(worker_key(name), KEEP_S)


class Bomb:
    """Its unpickling leaves a file behind."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.path}",))
