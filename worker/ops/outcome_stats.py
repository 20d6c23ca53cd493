"""The counters that workers keep for each queue: read, checked and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from queue_client.protocol import stats_key
from worker.ops.reading import read
from worker.ops.rq_state import text

MAX_FIELDS = 200_000  # counters of one queue that are read at all
MAX_SOURCES = 200  # data sources shown by name; the rest are "other"


@dataclass(slots=True)
class Tally:
    """Counters of one data source and status; times in ms, `…_le` counts by upper bound."""

    rows: int = 0
    tokens: int = 0
    reward: float = 0.0
    wait_ms: float = 0.0
    run_ms: float = 0.0
    wait_le: dict[str, int] = field(default_factory=dict)
    run_le: dict[str, int] = field(default_factory=dict)
    reward_le: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What one queue's rows came to, by (data source, status)."""

    queue: str
    tallies: dict[tuple[str, str], Tally]
    skipped: bool = False


def outcome_stats(connection: redis.Redis, queues: list[str]) -> list[QueueStats]:
    """Read the counters of all queues: two round trips."""
    keys = [stats_key(queue) for queue in queues]
    sizes = read(connection, [("HLEN", key) for key in keys])
    fits = [isinstance(size, int) and size <= MAX_FIELDS for size in sizes]
    wanted = [("HGETALL", key) for key, fit in zip(keys, fits, strict=True) if fit]
    fetched = iter(read(connection, wanted))
    found = []
    for queue, fit in zip(queues, fits, strict=True):
        stored = next(fetched) if fit else {}
        whole = isinstance(stored, dict)
        found.append(
            QueueStats(queue, tallied(stored) if whole else {}, skipped=not fit or not whole)
        )
    return found


def tallied(stored: Mapping[bytes, bytes]) -> dict[tuple[str, str], Tally]:
    """Read `{source}|{status}|{what}` -> number; what is not of that form is left out."""
    tallies: dict[tuple[str, str], Tally] = {}
    sources: set[str] = set()
    for name, value in sorted(stored.items()):
        parts = text(name).rsplit("|", 2)
        number = _number(value)
        if len(parts) != 3 or number is None:
            continue
        source, status, what = parts
        if source not in sources and len(sources) >= MAX_SOURCES:
            source = "other"
        sources.add(source)
        _count(tallies.setdefault((source, status), Tally()), what, number)
    return tallies


def _count(tally: Tally, what: str, number: float) -> None:
    if what in ("rows", "tokens"):
        setattr(tally, what, getattr(tally, what) + int(number))
    elif what in ("reward", "wait_ms", "run_ms"):
        setattr(tally, what, getattr(tally, what) + number)
    else:
        series, _, bound = what.partition("_le_")
        if series in ("wait", "run", "reward") and _is_bound(bound):
            counts = getattr(tally, f"{series}_le")
            counts[bound] = counts.get(bound, 0) + int(number)


def _is_bound(bound: str) -> bool:
    return bound == "inf" or (len(bound) < 12 and _number(bound.encode()) is not None)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < 1e300 else None  # NaN and infinity compare false or larger
