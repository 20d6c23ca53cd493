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
        kwargs = get_connection_kwargs(connection)
        plain = {name: value for name, value in kwargs.items() if isinstance(value, _PLAIN)}
        kind = connection.connection_pool.connection_class
        order = {
            "connection": f"{kind.__module__}:{kind.__qualname__}",
            "kwargs": plain,
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


def main() -> None:
    """Schedule until told to stop or until the parent is gone."""
    from rq.scheduler import RQScheduler
    from rq.utils import import_attribute

    from queue_client.wire import Serializer

    remove_pickle()
    order: dict[str, Any] = msgpack.unpackb(base64.b64decode(os.environ[ENV]))
    connection_class = import_attribute(order["connection"].replace(":", "."))
    pool = redis.ConnectionPool(connection_class=connection_class, **order["kwargs"])
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
    sys.stdin.buffer.read()
    scheduler.request_stop()


if __name__ == "__main__":
    main()
