"""Outcomes on their way back: gathered for a moment, written fenced, tried until they are in."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import redis
from redis.exceptions import RedisError
from rq.utils import now, utcformat

from queue_client import protocol
from queue_client.outcome import Outcome
from queue_client.wire import Serializer
from worker.pool.flight import Flight
from worker.pool.rows import encode_row
from worker.pool.scripts import Argument, Call, Script, run_all

logger = logging.getLogger("rewardpool.pool")

GATHER_S = 0.003  # while outcomes keep coming; the wire promises at most 0.05
ROWS_A_CALL = 500
CALLS_A_TRIP = 256
RETRY_S = (0.05, 0.1, 0.25, 0.5, 1.0)
MAX_MESSAGE = 2_000

_DELIVER = Script("pool_deliver")


class Delivery:
    """Writes outcomes; lives on the event loop, talks to Redis from one thread of its own.

    `on_ended(flight, dependents)` is called once a job is over, `on_lost(flight)` once it turns
    out that its execution is somebody else's now: its outcomes were dropped.
    """

    def __init__(
        self,
        connection: redis.Redis,
        *,
        worker: str,
        on_ended: Callable[[Flight, bool], None],
        on_lost: Callable[[Flight], None],
    ) -> None:
        self._connection, self._worker = connection, worker
        self._on_ended, self._on_lost = on_ended, on_lost
        self._dirty: dict[Flight, None] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deliver")
        self.trips = 0

    def push(self, flight: Flight) -> None:
        """Send what is unsent of a flight, soon."""
        self._dirty[flight] = None
        self._idle.clear()
        self._wake.set()

    async def drained(self) -> None:
        """Wait until everything pushed has been written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._dirty:
                batch = list(self._dirty)[:CALLS_A_TRIP]
                for flight in batch:
                    del self._dirty[flight]
                began = loop.time()
                await self._write(batch)
                if self._dirty and loop.time() - began < GATHER_S:
                    await asyncio.sleep(GATHER_S)
            self._idle.set()

    def close(self) -> None:
        """End the thread; what has not been written is lost to this process."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    async def _write(self, batch: list[Flight]) -> None:
        loop = asyncio.get_running_loop()
        parts = [(flight, *_take_unsent(flight)) for flight in batch if not flight.is_ended]
        tries = 0
        while parts:
            answers = await loop.run_in_executor(self._thread, self._send, parts)
            self.trips += 1
            again = []
            for part, answer in zip(parts, answers, strict=True):
                if isinstance(answer, redis.exceptions.ResponseError) and not _passing(answer):
                    logger.error("delivery refused job=%s error=%s", part[0].job_id, answer)
                    self._on_lost(part[0])
                elif isinstance(answer, Exception):
                    again.append(part)
                else:
                    self._note(part[0], part[2], answer)
            if again and tries == 0:
                logger.warning("delivery delayed jobs=%d", len(again))
            parts = again
            if parts:
                await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
                tries += 1

    def _note(self, flight: Flight, ending: str, answer: Any) -> None:
        if answer[0] == -1:
            if not flight.is_ended:
                self._on_lost(flight)
        elif ending:
            flight.is_ended = True
            self._on_ended(flight, bool(answer[1]))

    def _send(self, parts: list[tuple[Flight, list[tuple[int, Outcome]], str]]) -> list[Any]:
        calls: list[Call] = []
        owners: list[int] = []
        for index, (flight, rows, ending) in enumerate(parts):
            for call in _calls(flight, rows, ending, self._worker):
                calls.append(call)
                owners.append(index)
        try:
            answers = run_all(self._connection, calls)
        except RedisError as error:
            return [error] * len(parts)
        except OSError as error:
            return [error] * len(parts)
        last: list[Any] = [None] * len(parts)
        for owner, answer in zip(owners, answers, strict=True):
            if not isinstance(last[owner], Exception):
                last[owner] = answer
        return last


def _passing(error: Exception) -> bool:
    """Whether Redis will get over it: loading, read-only after a failover, out of memory, busy."""
    return str(error).startswith(("LOADING", "READONLY", "OOM", "BUSY", "TRYAGAIN", "MASTERDOWN",
                                  "CLUSTERDOWN", "MISCONF", "NOREPLICAS"))  # fmt: skip


def _take_unsent(flight: Flight) -> tuple[list[tuple[int, Outcome]], str]:
    rows, flight.unsent = flight.unsent, []
    return rows, flight.ending


def _calls(
    flight: Flight, rows: list[tuple[int, Outcome]], ending: str, worker: str
) -> Iterator[Call]:
    """Rows in pieces a script can hold; the last piece ends the job when it ends."""
    pieces = [rows[i : i + ROWS_A_CALL] for i in range(0, len(rows), ROWS_A_CALL)] or [[]]
    keys = flight.keys(worker)
    for number, piece in enumerate(pieces, 1):
        is_last = number == len(pieces)
        head = _head(flight, ending if is_last else "", worker)
        rows_of_piece = [encode_row(flight, row, outcome) for row, outcome in piece]
        packed = msgpack.packb(rows_of_piece, use_bin_type=False)  # Lua knows no binary type
        yield _DELIVER, keys, [*head, packed]


def _head(flight: Flight, ending: str, worker: str) -> list[Argument]:
    verdict = flight.verdict
    kind = message = ""
    result = b""
    keep_s = flight.result_ttl_s if ending == "finished" else 3600
    if verdict is not None:
        keep_s, kind, message = flight.failure_ttl_s, verdict.kind.value, verdict.message
        message = message[:MAX_MESSAGE]
        result = base64.b64encode(zlib.compress(message.encode("utf-8", "replace")))
    elif ending:
        failed = flight.rows - flight.scored
        summary = {"rows": flight.rows, "scored": flight.scored, "failed": failed}
        result = base64.b64encode(Serializer.dumps(summary))
    return [
        flight.job_id,
        flight.run,
        ending,
        utcformat(now()),
        keep_s,
        protocol.REPLY_TTL_S if flight.producer else 0,
        protocol.REPLY_MAXLEN,
        result,
        kind,
        message,
        worker,
        f"{flight.started_s:.6f}",
        f"{flight.started_s + max(0.0, time.monotonic() - flight.taken_at):.6f}",
        protocol.STATS_TTL_S,
    ]
