"""RQ's scheduler as a process of its own: `python -m worker.ops.scheduler QUEUE…`.

Jobs of this pool are never scheduled; other jobs on the same queues may be (`enqueue_in`, retries
with an interval). Locks and heartbeats are RQ's. Moving a due job is ours: by id, in one step,
without reading a byte of the job, so that no job can stop or fill this process.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import redis
from rq.scheduler import RQScheduler

from queue_client.wire import Serializer
from worker.ops.rq_state import JOB_PREFIX, QUEUE_PREFIX, QUEUES_KEY, registry_key, text
from worker.pool.safety import remove_pickle
from worker.pool.scripts import Call, Script, run_all
from worker.settings import SettingsError, load_settings

logger = logging.getLogger(__name__)

CHUNK = 1_000  # due jobs of one queue moved in one pass
SOCKET_TIMEOUT_S = 10.0
OUTAGE_PAUSE_S = 2.0


class Scheduler(RQScheduler):  # type: ignore[misc]
    """RQ's scheduler, except that it never builds a job and outlives an outage of Redis."""

    move = Script("ops_schedule")

    def enqueue_scheduled_jobs(self) -> None:
        """Queue what is due, on every queue whose lock is ours."""
        self._status = self.Status.WORKING
        for queue in sorted(self.acquired_locks):
            count = move_due(self.connection, queue)
            if count:
                logger.info("scheduled jobs queued queue=%s count=%d", queue, count)
        self._status = self.Status.STARTED

    def heartbeat(self) -> None:
        """Keep the locks; wait, and go on, while Redis is away."""
        while not self._stop_requested:
            try:
                super().heartbeat()
                return
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
                logger.warning("redis unreachable error=%s", type(error).__name__)
                time.sleep(OUTAGE_PAUSE_S)


def move_due(connection: redis.Redis, queue: str) -> int:
    """Queue up to CHUNK due jobs of a queue; returns how many."""
    seconds, _ = connection.time()
    due = connection.zrangebyscore(registry_key(queue, "scheduled"), 0, seconds, 0, CHUNK)
    now = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    calls: list[Call] = []
    for job_id in map(text, due):
        keys = [
            JOB_PREFIX + job_id,
            registry_key(queue, "scheduled"),
            QUEUE_PREFIX + queue,
            QUEUES_KEY,
        ]
        calls.append((Scheduler.move, keys, [job_id, int(seconds), now]))
    replies = run_all(connection, calls) if calls else []
    return sum(reply for reply in replies if isinstance(reply, int))


def main(queues: Sequence[str]) -> int:
    """Run until SIGTERM; 2 for wrong settings."""
    if not queues:
        sys.stderr.write("usage: python -m worker.ops.scheduler QUEUE…\n")
        return 2
    try:
        url = load_settings().redis.url
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    remove_pickle()
    connection = redis.Redis.from_url(url, socket_timeout=SOCKET_TIMEOUT_S)
    scheduler = Scheduler(list(queues), connection=connection, serializer=Serializer)
    scheduler.work()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
