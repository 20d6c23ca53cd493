"""Move and remove jobs for an operator: by key and id, never by building a job from its bytes."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis
from rq.defaults import RQ_KEY_PREFIX

from queue_client.errors import WireError
from queue_client.outcome import Outcome
from queue_client.protocol import (
    MAX_JOB_TTL_S,
    SCORE_FUNCTION,
    TOOL_FUNCTION,
    Reference,
    attempts_key,
    cancel_key,
    outcomes_key,
    payload_key,
    producer_key,
    producer_of,
)
from queue_client.wire import Serializer, decode_outcome
from worker.ops.rq_state import (
    JOB_PREFIX,
    QUEUE_PREFIX,
    QUEUES_KEY,
    REGISTRIES,
    registry_key,
    text,
)
from worker.pool.scripts import Argument, Call, Script, run_all

_REQUEUE = Script("ops_requeue")
logger = logging.getLogger(__name__)

CHUNK = 500  # jobs moved between two round trips
MAX_DATA = 1 << 20  # bytes of a job's data that are looked at; ours have some hundred
#: Pools do not score for producers that are gone; an operator who requeues wants it all the same.
WANTED_S = 3600
STALE_A_CALL = 10_000  # ids taken off a queue by one compact

FAULTS = {
    "GONE": "there is no such job (any more)",
    "NOT_FAILED": "only a failed job can be requeued",
    "NO_PAYLOAD": "its batch has expired: the producer has to submit it again",
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a job needs to run as if it were new."""

    origin: str
    ours: bool
    data: bytes
    forgotten: tuple[str, ...]


def requeue(connection: redis.Redis, job_id: str) -> str | None:
    """Put one failed job back on its queue; returns why it was not, None if it was."""
    reply = _requeue_chunk(connection, [job_id])[0]
    return FAULTS.get(reply, reply) if reply != "OK" else None


def requeue_failed(connection: redis.Redis, queue: str) -> tuple[int, int]:
    """Put every failed job of a queue back on it; returns how many were, and how many were not."""
    done = seen = 0
    key = registry_key(queue, "failed")
    ids = [text(member) for member in connection.zrange(key, 0, -1)]
    for start in range(0, len(ids), CHUNK):
        replies = _requeue_chunk(connection, ids[start : start + CHUNK])
        done += replies.count("OK")
        seen += len(replies)
    logger.info("jobs requeued queue=%s count=%d left=%d", queue, done, seen - done)
    return done, seen - done


def delete(connection: redis.Redis, job_ids: Sequence[str]) -> int:
    """Remove jobs wherever they are, with payloads, outcomes and results; returns how many."""
    with connection.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.hmget(JOB_PREFIX + job_id, "origin", "status")
        facts = pipeline.execute(raise_on_error=False)
        for job_id, fact in zip(job_ids, facts, strict=True):
            if isinstance(fact, list) and fact[0] is not None:
                origin = text(fact[0])
                pipeline.lrem(QUEUE_PREFIX + origin, 1, job_id)
                for registry in REGISTRIES:
                    pipeline.zrem(registry_key(origin, registry), job_id)
        pipeline.execute(raise_on_error=False)
    return _forget(connection, job_ids)


def empty(connection: redis.Redis, queue: str, registry: str) -> int:
    """Remove every job of one registry; returns how many went."""
    count = 0
    for ids in _taken(connection, queue, registry):
        _forget(connection, ids)
        count += len(ids)
    logger.info("registry emptied queue=%s registry=%s count=%d", queue, registry, count)
    return count


def compact(connection: redis.Redis, queue: str) -> int:
    """Take ids off a queue whose jobs are gone, up to STALE_A_CALL of them; returns how many."""
    key = QUEUE_PREFIX + queue
    ids = [text(member) for member in connection.lrange(key, 0, -1)]
    stale: list[str] = []
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        with connection.pipeline(transaction=False) as pipeline:
            for job_id in chunk:
                pipeline.exists(JOB_PREFIX + job_id)
            there = pipeline.execute()
        stale += [job_id for job_id, one in zip(chunk, there, strict=True) if not one]
    with connection.pipeline(transaction=False) as pipeline:
        for job_id in stale[:STALE_A_CALL]:
            pipeline.lrem(key, 1, job_id)
        return sum(pipeline.execute()) if stale else 0


def _requeue_chunk(connection: redis.Redis, job_ids: Sequence[str]) -> list[str]:
    plans = _plans(connection, job_ids)
    seconds, _ = connection.time()
    now = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    calls: list[Call] = []
    for job_id, plan in zip(job_ids, plans, strict=True):
        keys = [
            JOB_PREFIX + job_id,
            registry_key(plan.origin, "failed"),
            QUEUE_PREFIX + plan.origin,
            QUEUES_KEY,
            payload_key(job_id),
            outcomes_key(job_id),
            attempts_key(job_id),
            cancel_key(job_id),
            producer_key(producer_of(job_id) or "nobody"),
        ]
        args: list[Argument] = [
            job_id,
            int(plan.ours),
            plan.data,
            now,
            MAX_JOB_TTL_S,
            WANTED_S if producer_of(job_id) else 0,
            *plan.forgotten,
        ]
        calls.append((_REQUEUE, keys, args))
    return [text(reply) for reply in run_all(connection, calls)]


def _plans(connection: redis.Redis, job_ids: Sequence[str]) -> list[_Plan]:
    with connection.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.hget(JOB_PREFIX + job_id, "origin")
            pipeline.hstrlen(JOB_PREFIX + job_id, "data")
        facts = pipeline.execute(raise_on_error=False)
        small = [isinstance(size, int) and size <= MAX_DATA for size in facts[1::2]]
        for job_id, fits in zip(job_ids, small, strict=True):
            if fits:
                pipeline.hget(JOB_PREFIX + job_id, "data")
                pipeline.hgetall(outcomes_key(job_id))
        fetched = iter(pipeline.execute(raise_on_error=False))
    found = []
    for job_id, origin, fits in zip(job_ids, facts[0::2], small, strict=True):
        data, outcomes = (next(fetched), next(fetched)) if fits else (None, {})
        found.append(_plan(job_id, text(origin or b""), data, outcomes))
    return found


def _plan(job_id: str, origin: str, data: Any, outcomes: Any) -> _Plan:
    """A job of ours gets a new deadline (none), and its failed rows run again."""
    function, args = _call(data)
    if function not in {SCORE_FUNCTION, TOOL_FUNCTION}:
        return _Plan(origin, ours=False, data=b"", forgotten=())
    try:
        old = Reference.read(job_id, args)
    except WireError:
        return _Plan(origin, ours=True, data=b"", forgotten=())
    fresh = Reference(job_id=job_id, rows=old.rows, deadline_ms=0, sent_ms=0)
    packed = Serializer.dumps((function, None, fresh.args(), {}))
    rows = outcomes.items() if isinstance(outcomes, dict) else ()
    failed = tuple(text(row) for row, stored in rows if not _scored(stored))
    return _Plan(origin, ours=True, data=packed, forgotten=failed)


def _call(data: Any) -> tuple[str | None, Any]:
    """Return function name and args of a job that our serializer wrote; None for any other."""
    if not isinstance(data, bytes):
        return None, None
    try:
        raw = zlib.decompressobj().decompress(data, MAX_DATA)
    except zlib.error:
        raw = data
    try:
        function, _, args, _ = Serializer.loads(raw)
    except Exception:  # noqa: BLE001 - foreign or hostile bytes: not a job of ours
        return None, None
    return (function, args) if isinstance(function, str) else (None, None)


def _scored(stored: bytes) -> bool:
    try:
        outcome: Outcome = decode_outcome(stored)
    except WireError:
        return False
    return outcome.ok


def _taken(connection: redis.Redis, queue: str, registry: str) -> Iterator[list[str]]:
    """Take ids off a registry, chunk by chunk, each chunk in one step."""
    while True:
        if registry == "queued":
            popped: Any = connection.lpop(QUEUE_PREFIX + queue, CHUNK)
        else:
            scored: Any = connection.zpopmin(registry_key(queue, registry), CHUNK)
            popped = [member for member, _ in scored]
        if not popped:
            return
        yield [text(member).partition(":")[0] for member in popped]


def _forget(connection: redis.Redis, job_ids: Sequence[str]) -> int:
    with connection.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.unlink(JOB_PREFIX + job_id)
            pipeline.unlink(
                f"{JOB_PREFIX}{job_id}:dependents",
                f"{RQ_KEY_PREFIX}:results:{job_id}",
                f"{RQ_KEY_PREFIX}:executions:{job_id}",
                payload_key(job_id),
                outcomes_key(job_id),
                attempts_key(job_id),
                cancel_key(job_id),
            )
        return sum(pipeline.execute()[0::2])
