"""Jobs as pages show them: only plain fields, lengths asked before values, never the payload."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
from rq.defaults import RQ_KEY_PREFIX

from worker.ops.dashboard.shown import clipped, inflated, plain
from worker.ops.reading import Command, read
from worker.ops.rq_state import JOB_PREFIX, QUEUE_PREFIX, moment, registry_key, text
from worker.pool.safety import MAX_TEXT, TooLarge, inflate

MAX_FIELD = 256 * 1024  # bytes of one stored field that are fetched at all
MAX_RESULT = 4 << 20  # bytes of a job's result stream that are fetched at all
LIST_TEXT = 2_000  # characters of a description or exception in a list

UNKNOWN = "unknown"  # the list script takes a missing time for the present

Decode = Callable[[bytes], Any]

_LISTED = ("created_at", "ended_at", "description", "exc_info")
_DETAIL = ("created_at", "enqueued_at", "started_at", "ended_at", "origin", "status",
           "description", "meta", "worker_name", "exc_info", "dependency_ids")  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of one registry, and how many there are in all."""

    total: int
    jobs: list[dict[str, Any]]


def page_of_jobs(
    connection: redis.Redis,
    queue: str,
    registry: str,
    *,
    offset: int,
    count: int,
    newest_first: bool = False,
) -> JobPage:
    """Read one page: four round trips, whatever the registry's size; vanished jobs are left out."""
    total = _size(connection, queue, registry)
    first = max(0, total - offset - count) if newest_first else offset
    last = (total - offset if newest_first else offset + count) - 1
    ids = _ids(connection, queue, registry, first, last) if last >= first else []
    if newest_first:
        ids.reverse()
    rows = read_fields(connection, [JOB_PREFIX + job_id for job_id in ids], _LISTED)
    results = latest_results(connection, ids)
    return JobPage(
        total,
        [
            _listed(job_id, row, result)
            for job_id, row, result in zip(ids, rows, results, strict=True)
            if row["created_at"] is not None or row["description"] is not None
        ],
    )


def job_detail(connection: redis.Redis, job_id: str, decode: Decode) -> dict[str, Any] | None:
    """Read everything a job's page shows; None if there is no such job. `decode` must be safe."""
    if not connection.exists(JOB_PREFIX + job_id):
        return None
    row = read_fields(connection, [JOB_PREFIX + job_id], _DETAIL)[0]
    result = latest_results(connection, [job_id])[0]
    needed = _dependencies(row["dependency_ids"])
    detail = {
        "id": job_id,
        **{name: _when(row[name]) for name in ("created_at", "enqueued_at", "started_at")},
        "ended_at": _when(row["ended_at"]),
        "origin": _shown(row["origin"]),
        "status": _shown(row["status"]),
        "description": _shown(row["description"]),
        "worker_name": _shown(row["worker_name"]),
        "result": _returned(result, decode),
        "exc_info": _exception(row, result),
        "metadata": json.dumps(_decoded(row["meta"], decode), ensure_ascii=False),
    }
    if needed:
        with connection.pipeline(transaction=False) as pipeline:
            for other in needed:
                pipeline.exists(JOB_PREFIX + other)
            there = pipeline.execute()
        detail["depends_on"] = [clipped(other, 200) for other in needed]
        detail["depends_on_status"] = ["active" if one else "expired" for one in there]
    return detail


def read_fields(
    connection: redis.Redis, keys: list[str], fields: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Read fields of many hashes; one longer than MAX_FIELD comes as a line that says so."""
    if not keys:
        return []
    with connection.pipeline(transaction=False) as pipeline:
        for key in keys:
            for name in fields:
                pipeline.hstrlen(key, name)
        lengths = pipeline.execute(raise_on_error=False)
        wanted = [isinstance(length, int) and 0 < length <= MAX_FIELD for length in lengths]
        for number, (key, name) in enumerate((key, name) for key in keys for name in fields):
            if wanted[number]:
                pipeline.hget(key, name)
        fetched = iter(pipeline.execute(raise_on_error=False))
    values = [
        next(fetched) if want else _not_fetched(length)
        for want, length in zip(wanted, lengths, strict=True)
    ]
    width = len(fields)
    return [
        dict(zip(fields, values[start : start + width], strict=True))
        for start in range(0, len(values), width)
    ]


def latest_results(connection: redis.Redis, job_ids: list[str]) -> list[dict[bytes, bytes] | str]:
    """Read the newest result of each job; a text where it is too large or not a result."""
    keys = [f"{RQ_KEY_PREFIX}:results:{job_id}" for job_id in job_ids]
    if not keys:
        return []
    with connection.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.memory_usage(key)
        sizes = pipeline.execute(raise_on_error=False)
        for key, size in zip(keys, sizes, strict=True):
            if isinstance(size, int) and size <= MAX_RESULT:
                pipeline.xrevrange(key, count=1)
        fetched = iter(pipeline.execute(raise_on_error=False))
    return [
        _entry(next(fetched)) if isinstance(size, int) and size <= MAX_RESULT else _too_large(size)
        for size in sizes
    ]


def _size(connection: redis.Redis, queue: str, registry: str) -> int:
    if registry == "queued":
        return int(connection.llen(QUEUE_PREFIX + queue))
    return int(connection.zcard(registry_key(queue, registry)))


def _ids(connection: redis.Redis, queue: str, registry: str, first: int, last: int) -> list[str]:
    if registry == "queued":
        command: Command = ("LRANGE", QUEUE_PREFIX + queue, first, last)
    else:
        command = ("ZRANGE", registry_key(queue, registry), first, last)
    [members] = read(connection, [command])
    if not isinstance(members, list):
        return []  # too large to be a list of ids
    # A started job is registered as job:execution; ids hold no colon.
    return list(dict.fromkeys(text(member).partition(":")[0] for member in members))


def _listed(job_id: str, row: dict[str, Any], result: dict[bytes, bytes] | str) -> dict[str, Any]:
    fault = _exception(row, result)
    return {
        "id": clipped(job_id, 200),
        "created_at": _when(row["created_at"]) or UNKNOWN,
        "ended_at": _when(row["ended_at"]) or UNKNOWN,
        "description": clipped(_shown(row["description"]) or "", LIST_TEXT),
        "exc_info": clipped(fault, LIST_TEXT) if fault else None,
    }


def _exception(row: dict[str, Any], result: dict[bytes, bytes] | str) -> str | None:
    if isinstance(result, dict) and (packed := result.get(b"exc_string")):
        return inflated(packed)
    if isinstance(result, str) and result:
        return result
    stored = row["exc_info"]  # what old versions of RQ, and workers of ours, leave in the hash
    if isinstance(stored, bytes) and stored:
        stored = _unpacked(stored)
    return _shown(stored) if stored else None


def _unpacked(stored: bytes) -> str:
    try:
        return text(inflate(stored, MAX_TEXT))
    except TooLarge as error:
        return f"<error text: {error}>"


def _returned(result: dict[bytes, bytes] | str, decode: Decode) -> Any:
    if isinstance(result, str):
        return result or None
    packed = result.get(b"return_value")
    if packed is None:
        return None
    try:
        return _decoded(base64.b64decode(packed, validate=True), decode)
    except (binascii.Error, ValueError):
        return f"<undecodable result, {len(packed):,} bytes>"


def _decoded(stored: Any, decode: Decode) -> Any:
    """Decode with our own serializer only; what another one wrote is described, never read."""
    if stored is None or stored == b"":
        return {}
    if not isinstance(stored, bytes):
        return text(stored)
    if stored[:1] == b"\x80" and stored.endswith(b"."):
        return f"<pickle of {len(stored):,} bytes: never read>"
    try:
        return plain(decode(stored))
    except Exception as error:  # noqa: BLE001 - hostile bytes may raise anything; the page goes on
        return f"<undecodable, {len(stored):,} bytes: {clipped(str(error), 200)}>"


def _dependencies(stored: Any) -> list[str]:
    try:
        listed = json.loads(stored) if isinstance(stored, bytes) else []
    except (ValueError, RecursionError):
        return []
    return [str(item) for item in listed[:50]] if isinstance(listed, list) else []


def _entry(reply: Any) -> dict[bytes, bytes] | str:
    if isinstance(reply, list) and reply and isinstance(reply[0][1], dict):
        return dict(reply[0][1])
    return "" if not reply else "<not a result>"


def _too_large(size: Any) -> str:
    return f"<result of {size:,} bytes: too large to show>" if isinstance(size, int) else ""


def _not_fetched(length: Any) -> Any:
    if isinstance(length, int) and length > MAX_FIELD:
        return f"<{length:,} bytes: too large to show>"
    return None


def _shown(value: Any) -> str | None:
    return None if value is None else clipped(text(value))


def _when(value: Any) -> str | None:
    stamp = moment(value)
    return None if stamp is None else stamp.isoformat()
