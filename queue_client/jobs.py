"""From trajectories to RQ jobs: cut into chunks, encoded, described in RQ's own fields."""

from __future__ import annotations

import os
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rq.defaults import RQ_KEY_PREFIX

from queue_client.batch import TrajectoryBatch
from queue_client.connecting import RedisClock
from queue_client.errors import BadTrajectory, WireError
from queue_client.flight import Job
from queue_client.futures import RewardFuture
from queue_client.protocol import (
    FAILURE_TTL_S,
    JOB_TTL_SLACK_S,
    MAX_JOB_TTL_S,
    PRODUCER_TTL_S,
    RESULT_TTL_S,
    ROWS_FIELD,
    SCORE_FUNCTION,
    Reference,
    job_ttl_s,
    new_job_id,
    payload_key,
    producer_key,
)
from queue_client.scripts import Call
from queue_client.trajectory import Trajectory
from queue_client.wire import Serializer, encode_batch

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
SPLIT_BYTES = 8 * 1024 * 1024  # larger jobs are halved: Redis and the loop stay quick
HASH_SLACK_S = 60
DEADLINE_STEP_S = 1.0  # rows whose deadlines are this close share a job
QUEUES_KEY = f"{RQ_KEY_PREFIX}:queues"


def job_key(job_id: str) -> str:
    """RQ's HASH of a job."""
    return f"{RQ_KEY_PREFIX}:job:{job_id}"


def queue_key(queue: str) -> str:
    """RQ's LIST of the ids that wait on a queue."""
    return f"{RQ_KEY_PREFIX}:queue:{queue}"


@dataclass(frozen=True, slots=True)
class Parcel:
    """Futures of one submission, on their way into jobs of one queue and one function."""

    queue: str
    futures: Sequence[RewardFuture]
    function: str = SCORE_FUNCTION
    payload: bytes | None = field(default=None, repr=False)  # encoded already: a tool call


def chunks(parcels: Iterable[Parcel], rows_per_job: int) -> Iterator[Parcel]:
    """Cut parcels into jobs' worth, in order: evenly, and no more than `rows_per_job` rows each.

    Rows of several submissions share a job when queue and deadline agree.
    """
    groups: dict[tuple[str, int], list[RewardFuture]] = {}
    for parcel in parcels:
        if parcel.payload is not None:
            yield parcel
            continue
        for future in parcel.futures:
            if not future.done():
                groups.setdefault((parcel.queue, _step(future.deadline)), []).append(future)
    for (queue, _), futures in groups.items():
        count = -(-len(futures) // rows_per_job)
        for part in range(count):
            start, end = len(futures) * part // count, len(futures) * (part + 1) // count
            yield Parcel(queue, futures[start:end])


def _step(deadline: float | None) -> int:
    return -1 if deadline is None else int(deadline / DEADLINE_STEP_S)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be sent, and why."""

    future: RewardFuture
    reason: str


def pack(parcel: Parcel, producer: str) -> Iterator[Job | BadRow]:
    """Encode a parcel as one job, or as several if it is large; a bad row is told apart."""
    futures = parcel.futures
    if parcel.payload is not None:
        yield _job(parcel, futures, parcel.payload, producer)
        return
    try:
        payload = encode(future.trajectory for future in futures)
    except (BadTrajectory, WireError, TypeError, ValueError, OverflowError) as error:
        if len(futures) == 1:
            yield BadRow(futures[0], str(error))
        else:
            for future in futures:
                yield from pack(Parcel(parcel.queue, [future]), producer)
        return
    if len(payload) > SPLIT_BYTES and len(futures) > 1:
        middle = len(futures) // 2
        yield from pack(Parcel(parcel.queue, futures[:middle]), producer)
        yield from pack(Parcel(parcel.queue, futures[middle:]), producer)
    elif len(payload) > MAX_PAYLOAD_BYTES:
        yield BadRow(
            futures[0], f"encoded it has {len(payload)} bytes, {MAX_PAYLOAD_BYTES} at most"
        )
    else:
        yield _job(parcel, futures, payload, producer)


def encode(trajectories: Iterable[Trajectory | None]) -> bytes:
    """Return the payload of these trajectories."""
    return encode_batch(TrajectoryBatch.pad(one for one in trajectories if one is not None))


def _job(parcel: Parcel, futures: Sequence[RewardFuture], payload: bytes, producer: str) -> Job:
    deadlines = [future.deadline for future in futures]
    known = [deadline for deadline in deadlines if deadline is not None]
    return Job(
        id=new_job_id(producer),
        queue=parcel.queue,
        function=parcel.function,
        futures=list(futures),
        payload=payload,
        sent_at=time.monotonic(),
        deadline=max(known) if len(known) == len(deadlines) else None,
    )


def enqueue_call(job: Job, producer: str, clock: RedisClock) -> Call:
    """Return keys and arguments of `client_enqueue.lua` for a job."""
    ttl_s = _ttl_s(job)
    keys = [
        job_key(job.id),
        payload_key(job.id),
        queue_key(job.queue),
        QUEUES_KEY,
        producer_key(producer),
    ]
    fields = rq_fields(job, ttl_s, clock)
    flat = [part for pair in fields.items() for part in pair]
    return keys, [job.id, job.payload, ttl_s, ttl_s + HASH_SLACK_S, PRODUCER_TTL_S, *flat]


def _ttl_s(job: Job) -> int:
    if job.deadline is None:
        return MAX_JOB_TTL_S
    left_s = job.deadline - time.monotonic()
    return job_ttl_s(left_s) if left_s > 0 else JOB_TTL_SLACK_S


def rq_fields(job: Job, ttl_s: int, clock: RedisClock) -> dict[str, Any]:
    """Return the hash that RQ's own `Job.save` would write for this job, and `ROWS_FIELD`."""
    rows = len(job.futures)
    reference = Reference(
        job_id=job.id,
        rows=rows,
        deadline_ms=0 if job.deadline is None else clock.ms(job.deadline),
        sent_ms=clock.ms(),
    )
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "created_at": now,
        "enqueued_at": now,
        "data": zlib.compress(Serializer.dumps((job.function, None, reference.args(), {})), 1),
        "origin": job.queue,
        "status": "queued",
        "description": _description(job.function, rows),
        "timeout": -1,
        "ttl": ttl_s,
        "result_ttl": RESULT_TTL_S,
        "failure_ttl": FAILURE_TTL_S,
        ROWS_FIELD: rows,
    }


def _description(function: str, rows: int) -> str:
    what = f"score {rows} trajectories" if function == SCORE_FUNCTION else "call a tool"
    return f"{what} for {socket.gethostname()}:{os.getpid()}"
