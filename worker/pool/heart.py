"""Heartbeats from a thread of their own, and what a worker is told between them."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import RedisError
from rq.utils import now, utcformat

from queue_client import protocol
from worker.pool import names
from worker.pool.flight import Flight
from worker.pool.scripts import Script
from worker.pool.take import RUN_S

logger = logging.getLogger("rewardpool.pool")

WATCH_S = 1.0  # between two looks for cancelled rows
EXIT_FROZEN = 70
GRACE_S = protocol.PRODUCER_BEAT_S + 5  # after an outage, until producers have said they live

_BEAT = Script("pool_beat")


@dataclass(slots=True)
class HeartSays:
    """How the thread speaks to the loop; each is called in the heart's thread."""

    lost: Callable[[list[str]], None]
    cancelled: Callable[[str, set[str]], None]
    silent: Callable[[str], None]
    forgotten: Callable[[], None]  # RQ's worker key is gone: register again


class Heart(threading.Thread):
    """Beats while the loop ticks.

    `flights()` are the executions in hand, `facts()` what the worker says about itself, `state()`
    RQ's word for what it does. The loop calls `tick()` several times a second; when it has not
    for `frozen_s`, the executions are left to others, and `expiry_s` later the process ends
    itself with code 70, as its rows are running elsewhere by then.
    """

    def __init__(
        self,
        connection: redis.Redis,
        *,
        worker: str,
        beat_s: float,
        expiry_s: int,
        frozen_s: float,
        flights: Callable[[], Iterable[Flight]],
        facts: Callable[[], dict[str, str | int]],
        state: Callable[[], str],
        says: HeartSays,
    ) -> None:
        super().__init__(name="heart", daemon=True)
        self._connection, self._worker = connection, worker
        self._beat_s, self._expiry_s, self._frozen_s = beat_s, expiry_s, frozen_s
        self._flights, self._facts, self._state, self._says = flights, facts, state, says
        self._stopping = threading.Event()
        self._ticked = time.monotonic()
        self._trusted_after = 0.0
        self._missing: set[str] = set()
        self._is_frozen = False
        self.clock_ms = 0
        self.beats = 0

    def tick(self) -> None:
        """The loop runs."""
        self._ticked = time.monotonic()

    def stop(self) -> None:
        """Beat no more."""
        self._stopping.set()

    def run(self) -> None:
        """Beat and watch until stopped."""
        due = 0.0
        is_away = False
        while not self._stopping.is_set():
            try:
                if time.monotonic() >= due:
                    self.beat()
                    due = time.monotonic() + self._beat_s
                    self._look_for_producers()
                self._look_for_cancelled()
                is_away = False
            except (RedisError, OSError) as error:
                self._trusted_after = time.monotonic() + GRACE_S
                if not is_away:
                    logger.warning("heartbeat failed error=%s", error)
                is_away = True
                due = 0.0
            except Exception:
                logger.exception("heartbeat failed")
            self._stopping.wait(min(WATCH_S, self._beat_s, 0.5 if is_away else WATCH_S))
        self._connection.close()

    def trusts_producers(self) -> bool:
        """Whether a missing sign of life means that a producer is gone, and not Redis."""
        return time.monotonic() >= self._trusted_after

    def beat(self) -> None:
        """Send one heartbeat. Raises RedisError."""
        flights = [] if self._loop_is_frozen() else list(self._flights())
        keys = [
            names.rq_worker_key(self._worker),
            names.holds_key(self._worker),
            protocol.worker_key(self._worker),
        ]
        said = [str(part) for pair in self._facts().items() for part in pair]
        args: list[Any] = [
            names.RQ_KEY_PREFIX,
            protocol.PREFIX,
            utcformat(now()),
            self._expiry_s,
            RUN_S,
            self._state(),
            json.dumps(said),
            self._worker,
        ]
        for flight in flights:
            args += (flight.queue, flight.job_id, flight.run)
        gone, redis_ms, *lost = _BEAT(self._connection, keys, args)
        self.clock_ms = int(time.time() * 1000) - int(redis_ms)
        self.beats += 1
        if gone:
            self._says.forgotten()
        if lost:
            self._says.lost([member.decode("utf-8", "replace") for member in lost])

    def _loop_is_frozen(self) -> bool:
        still_s = time.monotonic() - self._ticked
        if still_s <= self._frozen_s:
            self._is_frozen = False
            return False
        if not self._is_frozen:
            logger.error("event loop frozen still_s=%.0f: its jobs are left to others", still_s)
        self._is_frozen = True
        if still_s > self._frozen_s + self._expiry_s:
            logger.critical("event loop frozen still_s=%.0f: process ended", still_s)
            logging.shutdown()
            os._exit(EXIT_FROZEN)
        return True

    def _look_for_cancelled(self) -> None:
        jobs = [flight.job_id for flight in self._flights()]
        if not jobs:
            return
        cancel_keys = [protocol.cancel_key(job_id) for job_id in jobs]
        if not self._connection.exists(*cancel_keys):
            return
        with self._connection.pipeline(transaction=False) as pipeline:
            for key in cancel_keys:
                pipeline.smembers(key)
            for job_id, rows in zip(jobs, pipeline.execute(raise_on_error=False), strict=True):
                if rows and not isinstance(rows, Exception):
                    self._says.cancelled(job_id, {r.decode("utf-8", "replace") for r in rows})

    def _look_for_producers(self) -> None:
        """A producer is silent when its key is missing at two looks, with Redis there between."""
        producers = sorted({f.producer for f in self._flights() if f.producer})
        if not producers or not self.trusts_producers():
            self._missing.clear()
            return
        with self._connection.pipeline(transaction=False) as pipeline:
            for producer in producers:
                pipeline.exists(protocol.producer_key(producer))
            found = pipeline.execute()
        missing = {p for p, lives in zip(producers, found, strict=True) if not lives}
        for producer in sorted(missing & self._missing):
            self._says.silent(producer)
        self._missing = missing
