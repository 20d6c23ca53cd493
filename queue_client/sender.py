"""The sending thread: enqueues what was submitted, cancels, beats, and looks up overdue calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import redis

from queue_client.connecting import BLOCK_S, disconnect
from queue_client.errors import PoolUnavailable
from queue_client.flight import Job
from queue_client.inbox import Work
from queue_client.jobs import BadRow, chunks, enqueue_call, job_key, pack, queue_key
from queue_client.listeners import Listeners
from queue_client.outage import Outage
from queue_client.outcome import Kind, Outcome
from queue_client.protocol import (
    CANCEL_TTL_S,
    PRODUCER_TTL_S,
    REPLY_TTL_S,
    RESULT_TTL_S,
    attempts_key,
    cancel_key,
    payload_key,
    producer_key,
)
from queue_client.reconcile import Reconciler
from queue_client.scripts import Call, Script

if TYPE_CHECKING:
    from queue_client.link import Link

logger = logging.getLogger(__name__)

ENQUEUE = Script("client_enqueue")
CANCEL = Script("pool_cancel")
CHORES_EVERY_S = 1.0
BEAT_EVERY_S = 10.0
JOBS_A_TRIP = 64
BYTES_A_TRIP = 8 * 1024 * 1024
#: Errors of a server that will be itself again: they are borne like a lost connection.
PASSING = (
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
)


class Sender:
    """Everything this process writes to Redis goes through here, in order."""

    def __init__(self, link: Link, client: redis.Redis) -> None:
        self._link, self._client = link, client
        self._outage = Outage("submit", link.options.url, link.options.outage_s)
        self._reconciler = Reconciler(link, client)
        self._listeners = Listeners(link, client)
        self._chores_at = 0.0
        self._beat_at = 0.0

    @property
    def outages(self) -> int:
        """Connection losses so far."""
        return self._outage.count

    def run(self) -> None:
        """Work until the link closes, then say goodbye."""
        enough = 8 * self._link.options.rows_per_job
        while not self._link.closing.is_set():
            work = self._link.inbox.take(CHORES_EVERY_S, enough)
            try:
                self._turn(work)
            except Exception as error:  # a fault of ours must not leave callers waiting
                logger.exception("sending failed")
                self._fail_unsent(work, error)
        self._goodbye()

    def _turn(self, work: Work) -> None:
        self._send(self._packed(work))
        if work.given_up:
            self._bearing(lambda: self._cancel(work.given_up))
        if self._link.flight.occupied.is_set() and time.monotonic() >= self._chores_at:
            for chore in (self._beat, self._look_up, self._listeners.run):
                self._bearing(chore)
            self._chores_at = time.monotonic() + CHORES_EVERY_S

    def _packed(self, work: Work) -> Iterable[Job]:
        for parcel in chunks(work.parcels, self._link.options.rows_per_job):
            for piece in pack(parcel, self._link.producer):
                if isinstance(piece, BadRow):
                    outcome = Outcome.failed(Kind.BAD_INPUT, piece.reason, attempts=0)
                    self._link.flight.end(piece.future, outcome)
                    continue
                for future in piece.futures:
                    if future is not None:
                        future.trajectory = None
                piece.server = self._link.server
                self._link.flight.add(piece)
                if piece.left:
                    yield piece

    def _send(self, jobs: Iterable[Job]) -> None:
        """Enqueue jobs, some at a time, so that the first ones run while the rest is encoded."""
        group: list[Job] = []
        size = 0
        for job in jobs:
            group.append(job)
            size += len(job.payload)
            if len(group) >= JOBS_A_TRIP or size >= BYTES_A_TRIP:
                self._push(group)
                group, size = [], 0
        if group:
            self._push(group)

    def _push(self, jobs: Sequence[Job]) -> None:
        """Enqueue jobs; again and again while Redis is away: a job that is there stays as it is."""
        waiting = [job for job in jobs if job.left]
        while waiting and not self._link.closing.is_set():
            calls = [enqueue_call(job, self._link.producer, self._link.clock) for job in waiting]
            try:
                replies = ENQUEUE.run_many(self._client, calls)
            except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                self._link.bear(self._outage, error)
                waiting = [job for job in waiting if job.left]
                continue
            waiting = self._judged(waiting, replies)
        self._recovered()

    def _judged(self, jobs: Sequence[Job], replies: Sequence[Any]) -> list[Job]:
        """Return the jobs to send again; what Redis refuses for good ends with its words."""
        again = []
        for job, reply in zip(jobs, replies, strict=True):
            if isinstance(reply, PASSING):
                again.append(job)
            elif isinstance(reply, Exception):
                self._link.fail_job(job, PoolUnavailable(f"Redis refused the job: {reply}"))
        if again:
            self._link.bear(self._outage, PoolUnavailable("the server takes no writes now"))
        return [job for job in again if job.left]

    def _recovered(self) -> None:
        if self._outage.over():
            self._beat_at = 0.0  # workers may have missed the last sign of life
            self._bearing(lambda: self._link.renew(self._client))  # not again: it is over

    def _cancel(self, given_up: dict[str, tuple[str, set[int]]]) -> None:
        calls: list[Call] = []
        for job_id, (queue, rows) in given_up.items():
            keys = [
                job_key(job_id),
                queue_key(queue),
                payload_key(job_id),
                attempts_key(job_id),
                cancel_key(job_id),
            ]
            some = [] if self._link.flight.get(job_id) is None else sorted(rows)
            calls.append((keys, [job_id, CANCEL_TTL_S, RESULT_TTL_S, *some]))
        for start in range(0, len(calls), JOBS_A_TRIP):
            CANCEL.run_many(self._client, calls[start : start + JOBS_A_TRIP])

    def _look_up(self) -> None:
        self._send(self._reconciler.run())

    def _beat(self) -> None:
        """Say that this producer lives, and drop the replies that were read."""
        if time.monotonic() < self._beat_at:
            return
        pipeline = self._client.pipeline(transaction=False)
        pipeline.set(producer_key(self._link.producer), "1", ex=PRODUCER_TTL_S)
        pipeline.expire(self._link.reply_key, REPLY_TTL_S)
        pipeline.xtrim(self._link.reply_key, minid=self._link.reader.last, approximate=False)
        pipeline.execute(raise_on_error=False)
        self._beat_at = time.monotonic() + BEAT_EVERY_S

    def _bearing(self, step: Any) -> None:
        """Do something that may wait for its next turn when Redis is away."""
        try:
            step()
            self._recovered()
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            self._link.bear(self._outage, error)
        except redis.RedisError as error:
            logger.warning("redis refused a command error=%s", error)

    def _fail_unsent(self, work: Work, error: Exception) -> None:
        for parcel in work.parcels:
            for future in parcel.futures:
                self._link.flight.fail(future, error)

    def _goodbye(self) -> None:
        """Nobody will read on: workers stop what is still theirs when the sign of life is gone."""
        reply = self._link.reply_key
        try:
            pipeline = self._client.pipeline(transaction=False)
            pipeline.delete(producer_key(self._link.producer))
            pipeline.xadd(reply, {"job": "", "closing": "1"})  # wakes the reader
            pipeline.expire(reply, PRODUCER_TTL_S)
            pipeline.execute(raise_on_error=False)
            self._link.reader.finished.wait(BLOCK_S)
            self._client.delete(reply)
        except (redis.RedisError, OSError):
            logger.debug("goodbye not delivered")
        disconnect(self._client)
