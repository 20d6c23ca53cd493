"""Looking up calls without news: lost messages, expired, deleted and abandoned jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, cast

import redis

from queue_client.errors import WireError
from queue_client.flight import Job
from queue_client.jobs import encode, job_key, queue_key
from queue_client.options import CHECK_EVERY_S
from queue_client.outcome import Kind, Outcome
from queue_client.protocol import MAX_OUTCOME_BYTES, new_job_id, outcomes_key
from queue_client.scripts import Script
from queue_client.wire import decode_batch

if TYPE_CHECKING:
    from queue_client.link import Link

logger = logging.getLogger(__name__)

CHECK = Script("client_check")
JOBS_A_CALL = 200
BYTES_A_READ = 8 * 1024 * 1024
CONFIRM_S = 1.0  # a job that seems gone is looked at twice
MAX_RESENDS = 2
ENDED = frozenset({"finished", "failed", "stopped", "canceled"})


class Reconciler:
    """Resolves what no message will resolve any more. Used by the sending thread alone."""

    def __init__(self, link: Link, client: redis.Redis) -> None:
        self._link, self._client = link, client

    def run(self) -> list[Job]:
        """Look up every job that is due; return new jobs to send: rows that Redis has lost."""
        now = time.monotonic()
        due = [job for job in self._link.flight.jobs() if _due(job, now)]
        resends: list[Job] = []
        for batch in _batched(due, JOBS_A_CALL):
            keys = [key for job in batch for key in (job_key(job.id), outcomes_key(job.id))]
            standing = CHECK(self._client, keys, [])
            for job, status, found in zip(batch, standing[::2], standing[1::2], strict=True):
                job.checked_at = now
                try:
                    again = self._settle(job, status.decode("utf-8", "replace"), int(found))
                except redis.ResponseError as error:  # a key was changed in between
                    logger.warning("job not looked up job=%s error=%s", job.id, error)
                    continue
                if again is not None:
                    resends.append(again)
        return resends

    def _settle(self, job: Job, status: str, found: int) -> Job | None:
        ended = status in ENDED or not status
        if status == "queued" and self._nowhere(job.queue):
            ended = True
        if found and (ended or found > len(job.futures) - job.left):
            self._fetch(job)
        if not job.left or not ended:
            job.missed = 0
            return None
        job.missed += 1
        if job.missed < 2:
            job.checked_at += CONFIRM_S - CHECK_EVERY_S
            return None
        if not status and job.resends < MAX_RESENDS and self._restarted(job):
            return self._again(job)
        self._end(job, _reason(status))
        return None

    def _fetch(self, job: Job) -> None:
        """Read outcomes whose messages did not arrive, a bounded number of bytes at a time.

        What stands in the hash is final, so a row whose outcome there is not readable has none.
        """
        key = outcomes_key(job.id)
        weighed = self._weigh(key, job.open_rows)
        for rows in _by_size([(r, size) for r, size in weighed if size <= MAX_OUTCOME_BYTES]):
            values = cast("list[bytes | None]", self._client.hmget(key, [str(r) for r in rows]))
            for row, value in zip(rows, values, strict=True):
                if value is not None and not self._link.reader.take(job, row, value):
                    self._unreadable(job, row)
        for row, size in weighed:
            if size > MAX_OUTCOME_BYTES:
                self._unreadable(job, row)

    def _unreadable(self, job: Job, row: int) -> None:
        outcome = Outcome.failed(Kind.WORKER_LOST, "the outcome in Redis is not readable")
        self._link.flight.settle(job.id, row, outcome)

    def _weigh(self, key: str, rows: Sequence[int]) -> list[tuple[int, int]]:
        pipeline = self._client.pipeline(transaction=False)
        for row in rows:
            pipeline.hstrlen(key, str(row))
        sizes: list[int] = pipeline.execute()
        return [(r, size) for r, size in zip(rows, sizes, strict=True) if size]

    def _nowhere(self, queue: str) -> bool:
        """Whether no job at all waits on a queue: one that says so has lost its place there."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.llen(queue_key(queue))
        pipeline.llen(f"{queue_key(queue)}:intermediate")
        waiting: list[int] = pipeline.execute()
        return not any(waiting)

    def _restarted(self, job: Job) -> bool:
        """Whether another server answers than the one the job was sent to: it may know nothing."""
        return self._link.server_now(self._client) != job.server

    def _again(self, job: Job) -> Job | None:
        """Return a new job of the rows without an outcome, or None if they cannot be read back."""
        rows = job.open_rows
        try:
            kept = decode_batch(job.payload).trajectories if len(rows) < len(job.futures) else None
            payload = job.payload if kept is None else encode(kept[row] for row in rows)
        except WireError as error:
            self._end(job, str(error))
            return None
        make = partial(
            Job,
            id=new_job_id(self._link.producer),
            queue=job.queue,
            function=job.function,
            payload=payload,
            sent_at=time.monotonic(),
            deadline=job.deadline,
            server=self._link.server,
            resends=job.resends + 1,
        )
        logger.warning("job lost by redis, sent again job=%s rows=%d", job.id, len(rows))
        return self._link.flight.move(job, rows, make)

    def _end(self, job: Job, reason: str) -> None:
        logger.warning("job ended without outcomes job=%s rows=%d: %s", job.id, job.left, reason)
        for row in job.open_rows:
            self._link.flight.settle(job.id, row, Outcome.failed(Kind.WORKER_LOST, reason))


def _due(job: Job, now: float) -> bool:
    return now - max(job.news_at, job.checked_at) >= CHECK_EVERY_S or not job.checked_at


def _reason(status: str) -> str:
    if status == "queued":
        return "the job was taken off its queue by somebody else"
    if status:
        return f"the job ended as {status} without an outcome for this row"
    return "the job is gone from Redis: deleted, expired or evicted"


def _batched(jobs: Iterable[Job], size: int) -> Iterable[list[Job]]:
    stream = iter(jobs)
    while batch := list(islice(stream, size)):
        yield batch


def _by_size(weighed: Iterable[tuple[int, int]]) -> Iterable[list[int]]:
    """Group rows so that one read stays small."""
    group: list[int] = []
    total = 0
    for row, size in weighed:
        if group and total + size > BYTES_A_READ:
            yield group
            group, total = [], 0
        group.append(row)
        total += size
    if group:
        yield group
