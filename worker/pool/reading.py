"""From what was taken to a flight: fields checked, batch decoded, dead letters told apart."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from queue_client import protocol
from queue_client.errors import BadTrajectory, WireError
from queue_client.outcome import Kind
from queue_client.wire import decode_batch
from worker.pool.flight import Flight, Verdict
from worker.pool.job import BadJob, PoolJob

MAX_PAYLOAD = 512 * 1024 * 1024  # bytes; a Redis string holds no more


@dataclass(slots=True)
class Taken:
    """One job as `pool_take.lua` gives it."""

    job_id: str
    queue: str
    run: str
    fields: dict[bytes, bytes]
    payload_bytes: int
    payload: bytes | None
    attempts: dict[str, int]
    done: set[int]
    cancelled: set[str]
    producer_lives: bool
    redis_ms: int

    @classmethod
    def read(cls, raw: list[Any], queues: Sequence[str], redis_ms: int) -> Taken:
        """Take the answer apart; entries that make no sense are left out."""
        job_id, position, run, fields, size, payload, attempts, done, cancelled, lives = raw
        counts = zip(attempts[::2], attempts[1::2], strict=True)
        return cls(
            job_id=_text(job_id),
            queue=queues[position - 1],
            run=_text(run),
            fields=dict(zip(fields[::2], fields[1::2], strict=True)),
            payload_bytes=size,
            payload=payload if payload or size == 0 else None,
            attempts={_text(row): _number(count) for row, count in counts},
            done={number for row in done if (number := _number(row, -1)) >= 0},
            cancelled={_text(row) for row in cancelled},
            producer_lives=bool(lives),
            redis_ms=redis_ms,
        )

    def fetch(self, connection: redis.Redis) -> None:
        """Read a payload that did not come with the answer."""
        found: Any = connection.get(protocol.payload_key(self.job_id))
        self.payload, self.payload_bytes = found, -1 if found is None else len(found)


def flight_of(
    taken: Taken, connection: redis.Redis, serializer: Any, *, max_attempts: int
) -> Flight:
    """Return a flight with its rows, or one whose verdict says why the job cannot run.

    A job that was taken `max_attempts` times and never came to start is not decoded again.
    """
    flight = Flight(
        taken.job_id,
        taken.queue,
        taken.run,
        taken_at=time.monotonic(),
        started_s=taken.redis_ms / 1000,
    )
    try:
        _fill(flight, taken, connection, serializer, max_attempts)
    except (BadJob, WireError, BadTrajectory) as error:
        flight.verdict = Verdict("failed", Kind.BAD_INPUT, str(error))
    except RecursionError:
        flight.verdict = Verdict("failed", Kind.BAD_INPUT, "payload: nested too deeply")
    except MemoryError:
        flight.verdict = Verdict("failed", Kind.BAD_INPUT, "payload: too large for this worker")
    return flight


def _fill(
    flight: Flight, taken: Taken, connection: redis.Redis, serializer: Any, max_attempts: int
) -> None:
    if not protocol.valid_job_id(taken.job_id):
        raise BadJob("id: letters, digits, dashes and underscores expected")
    job = PoolJob(taken.job_id, connection=connection, serializer=serializer)
    job.restore(taken.fields)
    flight.result_ttl_s = _lifetime(job.result_ttl, protocol.RESULT_TTL_S)
    flight.failure_ttl_s = _lifetime(job.failure_ttl, protocol.FAILURE_TTL_S)
    function, reference = job.call()
    if job.origin != taken.queue:
        raise BadJob(f"origin: {taken.queue!r} expected (got {job.origin[:80]!r})")
    if taken.payload is None:
        raise BadJob("payload: is missing; it expired, or was never written")
    flight.rows = reference.rows
    flight.open_rows = set(range(reference.rows)) - taken.done
    flight.todo = sorted(flight.open_rows)
    flight.scored = len(taken.done)
    _set_times(flight, reference, taken.redis_ms)
    _set_starts(flight, taken.attempts)
    if flight.takes >= max_attempts:
        return
    if function == protocol.TOOL_FUNCTION:
        protocol.decode_tool_call(taken.payload)
        if reference.rows != 1:
            raise BadJob(f"args.rows: a tool call has one row (got {reference.rows})")
        flight.tool = taken.payload
        return
    trajectories = decode_batch(taken.payload).trajectories
    if len(trajectories) != reference.rows:
        raise BadJob(f"payload: {reference.rows} rows expected (got {len(trajectories)})")
    flight.trajectories = trajectories


def _set_times(flight: Flight, reference: protocol.Reference, redis_ms: int) -> None:
    if reference.deadline_ms:
        left_s = (reference.deadline_ms - redis_ms) / 1000
        flight.deadline = flight.taken_at + left_s
    else:
        flight.deadline = math.inf
    if reference.sent_ms:
        flight.queued_s = max(0.0, (redis_ms - reference.sent_ms) / 1000)


def _set_starts(flight: Flight, attempts: dict[str, int]) -> None:
    flight.counted_whole = not attempts
    flight.takes = attempts.get("takes", 0)
    whole = attempts.get("*", 0)
    flight.starts = {
        row: starts for row in flight.todo if (starts := whole + attempts.get(str(row), 0)) > 0
    }


def _lifetime(given: int | None, usual: int) -> int:
    """Seconds a job is kept: RQ's "for ever" and "not at all" become bounds of ours."""
    if given is None or given == 0:
        return usual
    return protocol.MAX_JOB_TTL_S if given < 0 else min(max(given, 1), 7 * protocol.MAX_JOB_TTL_S)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(value: Any, otherwise: int = 0) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return otherwise
