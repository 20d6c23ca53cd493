"""What worker processes publish about themselves, beside RQ's own keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from queue_client.protocol import worker_key
from worker.ops.reading import read
from worker.ops.rq_state import WorkerState, age_s, text

MAX_FIELD = 20_000  # characters; longer values are not what a worker wrote
_FIELDS = ("host", "pid", "version", "concurrency", "in_flight", "clock_ms", "settings",
           "functions", "limits")  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker process; `rows` are trajectories in flight, `clock_ms` its clock minus Redis'.

    `functions` maps what the settings name to a hash of its source, or to "error: …".
    """

    name: str
    queues: tuple[str, ...]
    state: str
    host: str
    version: str
    rows: int
    concurrency: int
    clock_ms: int | None
    settings: str
    heartbeat_age_s: float | None
    age_s: float | None  # since its start
    functions: dict[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    ours: bool = True  # a foreign RQ worker publishes nothing


def worker_facts(connection: redis.Redis, workers: Sequence[WorkerState]) -> list[WorkerFacts]:
    """Return what each registered worker says: one round trip."""
    replies = read(connection, [("HMGET", worker_key(one.name), *_FIELDS) for one in workers])
    return [_facts(worker, reply) for worker, reply in zip(workers, replies, strict=True)]


def _facts(worker: WorkerState, reply: Any) -> WorkerFacts:
    values = reply if isinstance(reply, list) else [None] * len(_FIELDS)
    said = {
        name: text(value)
        for name, value in zip(_FIELDS, values, strict=True)
        if value is not None and len(value) <= MAX_FIELD
    }
    return WorkerFacts(
        name=worker.name,
        queues=worker.queues,
        state=worker.state,
        host=said.get("host", worker.facts.get("hostname", "?"))[:200],
        version=said.get("version", "?")[:40],
        rows=_whole(said.get("in_flight")) or 0,
        concurrency=_whole(said.get("concurrency")) or 0,
        clock_ms=_whole(said.get("clock_ms")),
        settings=said.get("settings", "")[:40],
        heartbeat_age_s=worker.heartbeat_age_s,
        age_s=age_s(worker.facts.get("birth")),
        functions=_functions(said.get("functions")),
        limits=_names(said.get("limits")),
        ours=bool(said),
    )


def _functions(value: str | None) -> dict[str, str]:
    found = _json(value)
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _names(value: str | None) -> tuple[str, ...]:
    found = _json(value)
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def _json(value: str | None) -> Any:
    try:
        return None if value is None else json.loads(value)
    except (ValueError, RecursionError):
        return None


def _whole(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None
