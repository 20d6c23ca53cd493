"""What RQ's own keys say about queues and workers, read without building a single RQ object.

RQ's `Queue`, `Worker` and `Job` decode stored values with a serializer, one round trip each.
Here counters and plain text fields are read, all of them in one or two pipelines.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import redis
from rq.defaults import RQ_KEY_PREFIX

from worker.ops.reading import Command, read

#: Registry name as people say it -> key between prefix and queue name; each is a sorted set.
REGISTRIES = {
    "started": "wip",
    "finished": "finished",
    "failed": "failed",
    "deferred": "deferred",
    "scheduled": "scheduled",
    "canceled": "canceled",
}
QUEUES_KEY = f"{RQ_KEY_PREFIX}:queues"
WORKERS_KEY = f"{RQ_KEY_PREFIX}:workers"
QUEUE_PREFIX = f"{RQ_KEY_PREFIX}:queue:"
WORKER_PREFIX = f"{RQ_KEY_PREFIX}:worker:"
JOB_PREFIX = f"{RQ_KEY_PREFIX}:job:"
SUSPENDED_KEY = f"{RQ_KEY_PREFIX}:suspended"

_WORKER_FIELDS = ("state", "queues", "pid", "hostname", "ip_address", "version", "python_version",
                  "birth", "last_heartbeat", "successful_job_count", "failed_job_count",
                  "total_working_time")  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue: how many jobs are where, and how long its next job has been waiting, seconds."""

    name: str
    queued: int
    registries: dict[str, int]
    oldest_wait_s: float


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One registered worker as it described itself; `jobs` names up to three of those it holds."""

    name: str
    state: str
    queues: tuple[str, ...]
    in_flight: int
    jobs: tuple[str, ...]
    heartbeat_age_s: float | None
    facts: dict[str, str] = field(default_factory=dict)


def registry_key(queue: str, registry: str) -> str:
    """Return the key of one registry of a queue; `registry` is one of REGISTRIES."""
    return f"{RQ_KEY_PREFIX}:{REGISTRIES[registry]}:{queue}"


def queue_names(connection: redis.Redis) -> list[str]:
    """Return every queue anybody ever used, sorted."""
    [members] = read(connection, [("SMEMBERS", QUEUES_KEY)])
    if not _many(members):
        return []
    return sorted(text(member).removeprefix(QUEUE_PREFIX) for member in members)


def queue_states(connection: redis.Redis) -> list[QueueState]:
    """Count the jobs of every queue: three round trips, whatever their number."""
    names = queue_names(connection)
    commands: list[Command] = []
    for name in names:
        commands += [("LLEN", QUEUE_PREFIX + name), ("LINDEX", QUEUE_PREFIX + name, 0)]
        commands += [("ZCARD", registry_key(name, registry)) for registry in REGISTRIES]
    replies = _counts(read(connection, commands))
    width = 2 + len(REGISTRIES)
    rows = [replies[start : start + width] for start in range(0, len(replies), width)]
    waits = _waits(connection, [row[1] for row in rows])
    return [
        QueueState(name, row[0], dict(zip(REGISTRIES, row[2:], strict=True)), wait)
        for name, row, wait in zip(names, rows, waits, strict=True)
    ]


def worker_states(connection: redis.Redis) -> list[WorkerState]:
    """Describe every registered worker that is still there: two round trips."""
    [members] = read(connection, [("SMEMBERS", WORKERS_KEY)])
    keys = [text(key) for key in members] if _many(members) else []
    commands: list[Command] = []
    for key in keys:
        held = f"{key}:executions"
        commands += [("HMGET", key, *_WORKER_FIELDS), ("SCARD", held), ("SRANDMEMBER", held, 3)]
    replies = read(connection, commands)
    found = []
    for number, key in enumerate(keys):
        fields, in_flight, samples = replies[3 * number : 3 * number + 3]
        if isinstance(fields, list) and any(value is not None for value in fields):
            found.append(_worker(key, fields, in_flight, samples))
    return sorted(found, key=lambda worker: (worker.state, worker.queues, worker.name))


def suspended(connection: redis.Redis) -> bool:
    """Whether `rq suspend` holds all workers."""
    return bool(connection.exists(SUSPENDED_KEY))


def text(value: Any) -> str:
    """Return stored bytes as text, whatever they are."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def moment(value: Any) -> datetime | None:
    """Read one of RQ's time stamps; None for what is not one."""
    if value is None:
        return None
    try:
        parsed = datetime.fromisoformat(text(value)[:40].replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


def age_s(value: Any) -> float | None:
    """Return the seconds since one of RQ's time stamps, never negative."""
    stamp = moment(value)
    return None if stamp is None else max(0.0, time.time() - stamp.timestamp())


def _worker(key: str, fields: list[Any], in_flight: Any, samples: Any) -> WorkerState:
    said = {
        name: text(value)[:500]
        for name, value in zip(_WORKER_FIELDS, fields, strict=True)
        if value is not None
    }
    jobs = [text(member).partition(":")[0] for member in samples] if _many(samples) else []
    return WorkerState(
        name=key.removeprefix(WORKER_PREFIX),
        state=said.pop("state", "?"),
        queues=tuple(sorted(filter(None, said.pop("queues", "").split(",")))),
        in_flight=in_flight if isinstance(in_flight, int) else 0,
        jobs=tuple(sorted(jobs)),
        heartbeat_age_s=age_s(said.get("last_heartbeat")),
        facts=said,
    )


def _waits(connection: redis.Redis, heads: list[Any]) -> list[float]:
    """How long the job at the head of each queue has been queued, seconds; 0 without one."""
    known = [text(head) for head in heads if isinstance(head, bytes)]
    replies = read(connection, [("HGET", JOB_PREFIX + one, "enqueued_at") for one in known])
    stamps = dict(zip(known, replies, strict=True))
    return [age_s(stamps.get(text(head))) or 0.0 for head in heads]


def _counts(replies: Iterable[Any]) -> list[Any]:
    """Replies with faults (a key of another type) as 0."""
    return [0 if isinstance(reply, Exception) else reply for reply in replies]


def _many(value: Any) -> bool:
    return isinstance(value, list | set | tuple)
