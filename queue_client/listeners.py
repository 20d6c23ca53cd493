"""Whether anybody listens on the queues that this producer waits on."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import redis
from rq.defaults import RQ_KEY_PREFIX

from queue_client.errors import NoWorker
from queue_client.options import NO_WORKER_AFTER_S

if TYPE_CHECKING:
    from queue_client.link import Link

logger = logging.getLogger(__name__)

SUSPENDED_KEY = f"{RQ_KEY_PREFIX}:suspended"
LOOK_EVERY_S = 2.0
WORKERS_A_LOOK = 500
SAY_AGAIN_S = 60.0


def workers_key(queue: str) -> str:
    """RQ's SET of the workers that listen on a queue."""
    return f"{RQ_KEY_PREFIX}:workers:{queue}"


class Listeners:
    """Says after 5 s without news that nobody listens; ends the calls if the client wants that."""

    def __init__(self, link: Link, client: redis.Redis) -> None:
        self._link, self._client = link, client
        self._looked_at = 0.0
        self._said_at: dict[str, float] = {}

    def run(self) -> None:
        """Look at every queue whose oldest job has waited in silence."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        silent: dict[str, int] = {}
        latest: dict[str, float] = {}
        for job in self._link.flight.jobs():
            silent[job.queue] = silent.get(job.queue, 0) + job.left
            latest[job.queue] = min(latest.get(job.queue, now), job.sent_at)
            if job.news_at > job.sent_at:
                latest[job.queue] = now  # somebody has answered
        for queue, since in latest.items():
            if now - since >= NO_WORKER_AFTER_S:
                self._look(queue, silent[queue], now)

    def _look(self, queue: str, rows: int, now: float) -> None:
        living, suspended = self._living(queue)
        if living and not suspended:
            if self._said_at.pop(queue, None) is not None:
                logger.info("a worker listens now queue=%s workers=%d", queue, living)
            return
        if now - self._said_at.get(queue, -SAY_AGAIN_S) >= SAY_AGAIN_S:
            self._said_at[queue] = now
            if living:
                logger.warning("workers are suspended queue=%s waiting=%d", queue, rows)
            else:
                logger.warning("no worker listens on %s waiting=%d; %s", queue, rows, _hint(queue))
        if not living and self._link.options.no_worker == "raise":
            self._give_up(queue)

    def _living(self, queue: str) -> tuple[int, bool]:
        """How many of some registered workers live, and whether all of them are suspended."""
        _, names = self._client.sscan(workers_key(queue), 0, count=WORKERS_A_LOOK)
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.exists(name)
        pipeline.exists(SUSPENDED_KEY)
        *living, suspended = pipeline.execute()
        return sum(living), bool(suspended)

    def _give_up(self, queue: str) -> None:
        for job in self._link.flight.jobs():
            if job.queue == queue:
                self._link.fail_job(job, NoWorker(f"no worker listens on {queue}; {_hint(queue)}"))


def _hint(queue: str) -> str:
    return f"start one: rewardpool worker {queue}"
