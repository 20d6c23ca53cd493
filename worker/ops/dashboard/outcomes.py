"""The outcomes of a job's rows, as the job page shows them."""

from __future__ import annotations

from typing import Any

import redis

from queue_client.errors import WireError
from queue_client.protocol import outcomes_key
from queue_client.wire import decode_outcome
from worker.ops.dashboard.jobs import MAX_RESULT
from worker.ops.dashboard.shown import binary, clipped, plain
from worker.ops.rq_state import text

MAX_SHOWN = 200  # rows of one job; those that failed come first
ROW_TEXT = 2_000  # characters of one row's message


def outcomes_of(connection: redis.Redis, job_id: str) -> tuple[int, list[dict[str, Any]]]:
    """Return how many rows have an outcome, and up to MAX_SHOWN of them, failed ones first."""
    key = outcomes_key(job_id)
    with connection.pipeline(transaction=False) as pipeline:
        pipeline.hlen(key)
        pipeline.memory_usage(key)
        total, size = pipeline.execute(raise_on_error=False)
    if not isinstance(total, int) or not total:
        return 0, []
    if not isinstance(size, int) or size > MAX_RESULT:
        return total, [{"row": "all", "status": "too large to show", "message": f"{size:,} bytes"}]
    stored = connection.hgetall(key)
    rows = [_row(text(row), value) for row, value in stored.items()]
    rows.sort(key=lambda row: (row["status"] == "scored", _number(row["row"])))
    return total, rows[:MAX_SHOWN]


def _row(row: str, stored: Any) -> dict[str, Any]:
    try:
        outcome = decode_outcome(stored)
    except WireError as error:
        message = f"{clipped(str(error), 200)}: {binary(stored)}"
        return {"row": clipped(row, 20), "status": "undecodable", "message": message}
    return {
        "row": clipped(row, 20),
        "status": outcome.status,
        "reward": plain(outcome.reward),
        "kind": None if outcome.kind is None else str(outcome.kind),
        "message": clipped(outcome.message, ROW_TEXT),
        "extra": plain(outcome.extra),
        "attempts": plain(outcome.attempts),
        "wait_s": plain(outcome.wait_s),
        "run_s": plain(outcome.run_s),
        "uid": plain(outcome.uid),
    }


def _number(row: str) -> float:
    return int(row) if row.isdecimal() and len(row) < 10 else float("inf")
