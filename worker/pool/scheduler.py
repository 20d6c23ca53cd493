"""RQ's scheduler as a process of its own: spawned, never forked from a worker with threads.

Only jobs that somebody enqueues with a time or a retry interval need it; batches do not.
"""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgpack
import redis
from redis.sentinel import Sentinel, SentinelConnectionPool
from rq.connections import get_connection_kwargs

from worker.pool.safety import remove_pickle

logger = logging.getLogger("rewardpool.pool")

STOP_S = 10.0
RESTART_S = 2.0
ENV = "REWARDPOOL_SCHEDULER"  # never on the command line: it holds the password
_PLAIN = (str, int, float, bool, type(None))


class SchedulerProcess:
    """Keeps one scheduler process running until stopped; it also ends with its parent."""

    def __init__(self, connection: redis.Redis, queues: Sequence[str]) -> None:
        pool = connection.connection_pool
        kind = pool.connection_class
        order = {
            "connection": f"{kind.__module__}:{kind.__qualname__}",
            "kwargs": _plain(get_connection_kwargs(connection)),
            "sentinel": _sentinel_of(pool),
            "queues": list(queues),
        }
        packed = base64.b64encode(msgpack.packb(order)).decode()
        self._environment = {**os.environ, ENV: packed}
        self._stopping = threading.Event()
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, name="scheduler", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._keeper.join()
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "worker.pool.scheduler"],
            env=self._environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _keep(self) -> None:
        while not self._stopping.wait(RESTART_S):
            if self._process.poll() is not None:
                logger.warning("scheduler ended code=%s: restarted", self._process.returncode)
                self._process = self._start()


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if isinstance(value, _PLAIN)}


def _sentinel_of(pool: redis.ConnectionPool) -> dict[str, Any] | None:
    """What it takes to ask the same Sentinels for the same service, None without Sentinel."""
    if not isinstance(pool, SentinelConnectionPool):
        return None
    asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    return {
        "service": pool.service_name,
        "hosts": [[one["host"], one["port"]] for one in asked],
        "kwargs": _plain(pool.sentinel_manager.sentinel_kwargs),
    }


def _pool(sentinel: dict[str, Any] | None, kwargs: dict[str, Any]) -> redis.ConnectionPool:
    if sentinel is None:
        return redis.ConnectionPool(**kwargs)
    asked: Any = Sentinel
    made: Any = SentinelConnectionPool
    manager = asked(sentinel["hosts"], sentinel_kwargs=sentinel["kwargs"])
    pool: redis.ConnectionPool = made(sentinel["service"], manager, **kwargs)
    return pool


def main() -> None:
    """Schedule until told to stop or until the parent is gone."""
    from rq.scheduler import RQScheduler
    from rq.utils import import_attribute

    from queue_client.wire import Serializer

    remove_pickle()
    order: dict[str, Any] = msgpack.unpackb(base64.b64decode(os.environ[ENV]))
    kwargs = order["kwargs"]
    kwargs["connection_class"] = import_attribute(order["connection"].replace(":", "."))
    pool = _pool(order["sentinel"], kwargs)
    scheduler = RQScheduler(
        order["queues"], connection=redis.Redis(connection_pool=pool), serializer=Serializer
    )
    threading.Thread(target=_watch_parent, args=(scheduler,), daemon=True).start()
    while True:
        try:
            scheduler.acquire_locks()
            scheduler.work()
            return
        except (redis.exceptions.RedisError, OSError) as error:
            logger.warning("Redis unreachable while scheduling error=%s", error)
            time.sleep(RESTART_S)


def _watch_parent(scheduler: Any) -> None:
    while os.read(0, 1):  # not `sys.stdin`: its lock would be missed when the process ends
        pass
    scheduler.request_stop()


if __name__ == "__main__":
    main()
