"""Taking jobs: a thread that takes as many as there are places, and waits where there are none."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import RedisError
from rq.utils import now, utcformat

from queue_client import protocol
from worker.pool import names
from worker.pool.flight import Flight
from worker.pool.reading import Taken
from worker.pool.scripts import Script

logger = logging.getLogger("rewardpool.pool")

BLOCK_S = 1.0
JOBS_A_TRIP = 64
INLINE_BYTES = 256 * 1024
RUN_S = 3600  # keys of a running job are kept at least this long from each heartbeat
RETRY_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

_TAKE = Script("pool_take")
_RETURN = Script("pool_return")


@dataclass(frozen=True, slots=True)
class TakerFacts:
    """What does not change while a worker lives."""

    worker: str
    queues: Sequence[str]
    expiry_s: int


class Taker(threading.Thread):
    """Takes jobs while there are places.

    `free()` says how many rows may come, `held()` which executions the worker knows of,
    `accept(jobs, redis_ms)` gets what was taken; the latter is called in this thread.
    """

    def __init__(
        self,
        connect: Callable[[], redis.Redis],
        facts: TakerFacts,
        *,
        free: Callable[[], int],
        held: Callable[[], set[str]],
        accept: Callable[[list[Taken]], None],
        order: Callable[[Sequence[str], str | None], Sequence[str]],
    ) -> None:
        super().__init__(name="take", daemon=True)
        self._connect, self._facts = connect, facts
        self._free, self._held, self._accept, self._order = free, held, accept, order
        self._connection = connect()
        self._stopping = threading.Event()
        self._room = threading.Event()
        self._parked: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._listeners: list[_Listener] = []
        self._queues: Sequence[str] = facts.queues
        self._lost_an_answer = False
        self.is_suspended = False
        self.is_connected = True
        self.disturbed_at = 0.0  # when Redis was last away, monotonic
        self.jobs_left: int | None = None  # of --max-jobs
        self.idle_since = time.monotonic()
        self.rounds = 0  # completed looks at the queues
        self.looked_in_vain = False  # at the last look every queue was empty
        self.trips = 0
        self.crash: BaseException | None = None

    def stop(self) -> None:
        """Take nothing more; what is parked goes back."""
        self._stopping.set()
        self._room.set()

    def wake(self) -> None:
        """There may be room again."""
        self._room.set()

    def run(self) -> None:
        """Take until stopped."""
        tries = 0
        try:
            while not self._stopping.is_set():
                try:
                    self._round()
                    tries = 0
                    self.is_connected = True
                except (RedisError, OSError) as error:
                    self._note_outage(error, tries)
                    self._stopping.wait(RETRY_S[min(tries, len(RETRY_S) - 1)])
                    tries += 1
            self._leave()
        except BaseException as error:  # the worker has to end with it
            self.crash = error
            logger.exception("taking jobs failed")
        finally:
            for listener in self._listeners:
                listener.stop()
            self._connection.close()

    def _note_outage(self, error: Exception, tries: int) -> None:
        self.disturbed_at = time.monotonic()
        self._lost_an_answer = True
        if self.is_connected or tries % 20 == 19:
            logger.warning("Redis unreachable while taking jobs error=%s", error)
        self.is_connected = False

    def _round(self) -> None:
        if self._lost_an_answer:
            self._reclaim()
            self._lost_an_answer = False
        free = self._free()
        if free <= 0:
            self._put_parked_back()
            self._room.clear()
            if self._free() <= 0:
                self._room.wait(0.5)
            if self._free() <= 0:
                return
        taken = self._take(self._parked_now())
        self.looked_in_vain = taken == 0
        if taken or self.is_suspended:
            self.rounds += 1
            if self.is_suspended:
                self._stopping.wait(0.5)
            return
        self.rounds += 1
        self._wait_for_work()

    def _parked_now(self) -> list[tuple[str, str]]:
        found = []
        while True:
            try:
                found.append(self._parked.get_nowait())
            except queue.Empty:
                return found

    def _take(self, parked: list[tuple[str, str]]) -> int:
        most = JOBS_A_TRIP
        if self.jobs_left is not None:
            most = min(most, self.jobs_left)
        free = self._free() if most > 0 and not self._stopping.is_set() else 0
        places = {name: position for position, name in enumerate(self._queues, 1)}
        pairs = [part for name, job_id in parked for part in (places[name], job_id)]
        try:
            answer = self._call(free, most, pairs)
        except (RedisError, OSError):
            for entry in parked:
                self._parked.put(entry)
            raise
        self.is_suspended = answer[0] == b"SUSPENDED"
        jobs = [Taken.read(raw, self._queues, answer[1]) for raw in answer[2:]]
        if jobs:
            self._fetch_payloads(jobs)
            if self.jobs_left is not None:
                self.jobs_left -= len(jobs)
            self.idle_since = time.monotonic()
            self._queues = self._order(self._queues, jobs[-1].queue)
            self._accept(jobs)
        return len(jobs)

    def _call(self, free: int, most: int, parked: list[Any]) -> list[Any]:
        facts = self._facts
        keys = [
            names.rq_worker_key(facts.worker),
            names.holds_key(facts.worker),
            names.SUSPENDED,
            *(names.queue_key(name) for name in self._queues),
        ]
        args = [
            names.RQ_KEY_PREFIX,
            protocol.PREFIX,
            facts.worker,
            free,
            most,
            secrets.token_hex(12),
            utcformat(now()),
            facts.expiry_s,
            RUN_S,
            INLINE_BYTES,
            *parked,
        ]
        self.trips += 1
        answer: list[Any] = _TAKE(self._connection, keys, args)
        return answer

    def _fetch_payloads(self, jobs: list[Taken]) -> None:
        """Read what was too large to come with the answer, one at a time."""
        for job in jobs:
            if job.payload is None and job.payload_bytes >= 0:
                self.trips += 1
                job.fetch(self._connection)

    def _wait_for_work(self) -> None:
        if len(self._facts.queues) == 1:
            name = self._facts.queues[0]
            job_id = _park(self._connection, name, BLOCK_S)
            self.trips += 1
            if job_id is not None:
                self._parked.put((name, job_id))
            return
        if not self._listeners:
            self._listeners = [
                _Listener(self._connect(), name, self._parked) for name in self._facts.queues
            ]
        for listener in self._listeners:
            listener.listen()
        try:
            self._parked.put(self._parked.get(timeout=BLOCK_S))
        except queue.Empty:
            for listener in self._listeners:
                listener.check()

    def _leave(self) -> None:
        for listener in self._listeners:
            listener.stop()
        for listener in self._listeners:
            listener.join(BLOCK_S + 1)
        try:
            self._put_parked_back()
        except (RedisError, OSError):
            logger.warning("parked jobs left to the sweep")

    def _put_parked_back(self) -> None:
        """Without a place for it, an id that a listener was handed goes back to its queue."""
        parked = self._parked_now()
        if parked:
            self._take(parked)

    def _reclaim(self) -> None:
        """Put back what a lost answer had given us: nobody here knows those executions."""
        holds = names.holds_key(self._facts.worker)
        for raw in self._connection.smembers(holds):
            job_id, _, run = _text(raw).partition(":")
            if f"{job_id}:{run}" in self._held():
                continue
            origin = self._connection.hget(names.job_key(job_id), "origin")
            queue_name = _text(origin or b"")
            attempts = protocol.attempts_key(job_id)
            counts = self._connection.hgetall(attempts)
            whole = ["*"] if counts == {b"*": b"1", b"takes": b"1"} else []
            flight = Flight(job_id, queue_name, run)
            give_back(self._connection, flight, self._facts.worker, whole)
            logger.info("job of a lost answer put back job=%s", job_id)


def give_back(connection: redis.Redis, flight: Flight, worker: str, rows: Sequence[str]) -> bool:
    """Put a job back to the front of its queue; the starts of `rows` are not counted."""
    keys = [
        names.wip_key(flight.queue),
        names.job_key(flight.job_id),
        names.execution_key(flight.job_id, flight.run),
        names.executions_key(flight.job_id),
        names.holds_key(worker),
        names.queue_key(flight.queue),
        protocol.attempts_key(flight.job_id),
    ]
    return bool(_RETURN(connection, keys, [flight.job_id, flight.run, *rows]))


def _park(connection: redis.Redis, name: str, timeout_s: float) -> str | None:
    """Wait for a job id on a queue and move it to RQ's intermediate list."""
    waits: Any = connection.blmove  # redis-py's hints know whole seconds only
    found = waits(names.queue_key(name), names.intermediate_key(name), timeout_s, "LEFT", "RIGHT")
    return None if found is None else _text(found)


class _Listener(threading.Thread):
    """Waits on one of several queues, once each time it is asked to."""

    def __init__(
        self,
        connection: redis.Redis,
        name: str,
        parked: queue.SimpleQueue[tuple[str, str]],
    ) -> None:
        super().__init__(name=f"listen-{name}", daemon=True)
        self._connection, self._queue, self._parked = connection, name, parked
        self._asked = threading.Event()
        self._is_stopping = False
        self._error: Exception | None = None
        self.start()

    def listen(self) -> None:
        """Wait for one job, unless it waits already."""
        self._asked.set()

    def check(self) -> None:
        """Raise what its connection met."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """End it within BLOCK_S."""
        self._is_stopping = True
        self._asked.set()

    def run(self) -> None:
        while True:
            self._asked.wait()
            if self._is_stopping:
                self._connection.close()
                return
            self._asked.clear()
            try:
                job_id = _park(self._connection, self._queue, BLOCK_S)
            except (RedisError, OSError) as error:
                self._error = error
                continue
            if job_id is not None:
                self._parked.put((self._queue, job_id))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
