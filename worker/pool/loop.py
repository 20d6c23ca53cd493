"""The event loop of one worker: flights come, rows run as tasks of their own, outcomes leave."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import redis
from redis.exceptions import RedisError

from queue_client import protocol
from queue_client.outcome import Kind, Outcome
from worker.pool import names
from worker.pool.delivery import Delivery
from worker.pool.flight import Flight, Verdict
from worker.pool.places import Places
from worker.pool.scripts import Argument, Script
from worker.pool.take import RETRY_S, give_back
from worker.scoring.request import ScoreRequest

logger = logging.getLogger("rewardpool.pool")

TICK_S = 0.2
LATE_S = 1.0  # a row is stopped this long after its deadline, if the engine has not
CANCEL_WAIT_S = 5.0

_ATTEMPT = Script("pool_attempt")


class Engine(Protocol):
    """What the pool knows of scoring."""

    async def start(self) -> None:
        """Load what is needed, on the worker's loop."""

    async def score(self, request: ScoreRequest) -> Outcome:
        """Score one trajectory; raises nothing but CancelledError, which frees everything."""

    async def close(self) -> None:
        """End what `start` began."""


@dataclasses.dataclass(slots=True)
class Counts:
    """What one worker process has done."""

    jobs: int = 0
    rows: int = 0
    lost: int = 0
    returned: int = 0


class PoolLoop:
    """Flights in hand and their rows. Lives on the event loop.

    `flights` is read by other threads as well; it is changed here only.
    """

    def __init__(
        self,
        engine: Engine,
        delivery_connection: redis.Redis,
        attempt_connection: redis.Redis,
        *,
        worker: str,
        concurrency: int,
        max_attempts: int,
        on_room: Callable[[], None],
        on_dependents: Callable[[Flight], None],
    ) -> None:
        self.engine, self._worker = engine, worker
        self._max_attempts, self._on_room, self._on_dependents = (
            max_attempts,
            on_room,
            on_dependents,
        )
        self.flights: dict[str, Flight] = {}
        self.counts = Counts()
        self.places = Places(concurrency, max_attempts=max_attempts, start=self._start_row)
        self.delivery = Delivery(
            delivery_connection, worker=worker, on_ended=self._ended, on_lost=self.lost
        )
        self._attempts = attempt_connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="attempt")
        self._empty = asyncio.Event()
        self._empty.set()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- coming in

    def accept(self, flight: Flight, *, cancelled: set[str], producer_lives: bool) -> None:
        """Take a flight in hand: start its rows, or settle them unscored."""
        self.flights[flight.member] = flight
        self.counts.jobs += 1
        self._empty.clear()
        if flight.verdict is not None:
            logger.warning("job refused job=%s reason=%s", flight.job_id, flight.verdict.message)
            flight.open_rows.clear()
            self.delivery.push(flight)
            return
        if not producer_lives:
            self._settle_all(flight, Kind.CANCELLED, "the producer is gone")
        self._cancel_rows(flight, cancelled)
        if time.monotonic() >= flight.deadline:
            self._settle_all(flight, Kind.TIMEOUT, "the deadline passed while the row was queued")
        self._settle_worn_out(flight)
        if flight.takes:
            self._spawn(self._say_it_was_read(flight))
        if not flight.open_rows:
            self.delivery.push(flight)
            return
        if flight.deadline < float("inf"):
            late = flight.deadline + LATE_S - time.monotonic()
            flight.timer = self._loop.call_later(late, self._too_late, flight)
        todo = sorted(flight.open_rows)
        fresh = [row for row in todo if not flight.starts.get(row)]
        if fresh and not flight.counted_whole:
            self._spawn(self._count_then_add(flight, fresh))
        else:
            self.places.add(flight, fresh)
        self.places.add(flight, [row for row in todo if flight.starts.get(row)])

    async def _say_it_was_read(self, flight: Flight) -> None:
        await self._count(flight, [])

    def _settle_worn_out(self, flight: Flight) -> None:
        if flight.takes >= self._max_attempts:
            said = f"the worker died each time it took this job: {flight.takes} times"
            for row in sorted(flight.open_rows):
                attempts = flight.starts.get(row, 0)
                outcome = Outcome.failed(Kind.WORKER_LOST, said)
                self._settle(flight, row, outcome, attempts=attempts)
        for row, starts in list(flight.starts.items()):
            if starts >= self._max_attempts and row in flight.open_rows:
                said = f"the worker died each time this row ran: {starts} starts"
                self._settle(flight, row, Outcome.failed(Kind.WORKER_LOST, said), attempts=starts)

    async def _count_then_add(self, flight: Flight, rows: list[int]) -> None:
        if await self._count(flight, rows):
            self.places.add(flight, rows)

    # ---- rows

    def _start_row(self, flight: Flight, row: int) -> None:
        task = self._loop.create_task(self._run_row(flight, row))
        flight.tasks[row] = task

    async def _run_row(self, flight: Flight, row: int) -> None:
        try:
            outcome = await self._score(flight, row)
        except asyncio.CancelledError:
            outcome = None  # settled by whoever stopped it, given back, or lost
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the loop
            said = f"scoring failed: {type(error).__name__}: {error}"
            outcome = Outcome.failed(Kind.SCORER_ERROR, said)
        finally:
            flight.tasks.pop(row, None)
            self.places.done(flight, row)
            self._on_room()
        if outcome is not None:
            self._settle(flight, row, outcome)

    async def _score(self, flight: Flight, row: int) -> Outcome | None:
        if flight.starts.get(row) and not await self._count(flight, [row]):
            return None
        if time.monotonic() >= flight.deadline:
            return Outcome.failed(Kind.TIMEOUT, "the deadline passed before the row could start")
        waited = flight.queued_s + time.monotonic() - flight.taken_at
        if flight.tool is not None:
            return await self._call_tool(flight, waited)
        trajectory = flight.trajectories[row]
        if trajectory.data_source == protocol.PING_SOURCE:
            return Outcome.scored(0.0, uid=trajectory.uid, wait_s=waited)
        return await self.engine.score(
            ScoreRequest(trajectory, flight.deadline, waited, flight.attempt(row))
        )

    async def _call_tool(self, flight: Flight, waited: float) -> Outcome:
        tool, arguments, timeout_s = protocol.decode_tool_call(flight.tool or b"")
        call = getattr(self.engine, "call_tool", None)
        if call is None:
            return Outcome.failed(Kind.BAD_INPUT, f"tool: {tool!r} is not offered by this pool")
        deadline = flight.deadline
        if timeout_s is not None:
            deadline = min(deadline, time.monotonic() + timeout_s)
        outcome: Outcome = await call(tool, arguments, deadline=deadline, queued_s=waited)
        return outcome

    async def _count(self, flight: Flight, rows: list[int]) -> bool:
        """Count starts of rows that run again. Returns False when the execution is lost."""
        keys = [names.wip_key(flight.queue), protocol.attempts_key(flight.job_id)]
        args: list[Argument] = [flight.member, *rows]
        tries = 0
        while True:
            try:
                alive = await self._loop.run_in_executor(self._thread, self._count_now, keys, args)
                break
            except (RedisError, OSError):
                await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
                tries += 1
        if not alive:
            self.lost(flight)
            return False
        flight.counted += rows
        return True

    def _count_now(self, keys: list[str], args: list[Argument]) -> bool:
        return bool(_ATTEMPT(self._attempts, keys, args))

    # ---- settling

    def _settle(
        self, flight: Flight, row: int, outcome: Outcome, *, attempts: int | None = None
    ) -> None:
        uid = flight.trajectories[row].uid if row < len(flight.trajectories) else None
        count = flight.attempt(row) if attempts is None else attempts
        if attempts is None:  # the engine counts its own further tries on top
            count = max(count, outcome.attempts)
        outcome = dataclasses.replace(outcome, attempts=count, uid=uid)
        if flight.settle(row, outcome):
            self.counts.rows += 1
            self.delivery.push(flight)

    def _settle_all(self, flight: Flight, kind: Kind, message: str) -> None:
        for row in sorted(flight.open_rows):
            self._stop_row(flight, row, kind, message)
        self.places.drop(flight)

    def _stop_row(self, flight: Flight, row: int, kind: Kind, message: str) -> None:
        """End a row unscored; one that runs is cancelled, and settled now."""
        outcome = Outcome.failed(kind, message)
        task = flight.tasks.get(row)
        started = flight.starts.get(row, 0) + (task is not None)
        self._settle(flight, row, outcome, attempts=started)
        if task is not None:
            task.cancel()

    def _cancel_rows(self, flight: Flight, rows: set[str]) -> None:
        if "*" in rows:
            self._settle_all(flight, Kind.CANCELLED, "cancelled by the producer")
            return
        for row in sorted(flight.open_rows):
            if str(row) in rows:
                self._stop_row(flight, row, Kind.CANCELLED, "cancelled by the producer")

    def _too_late(self, flight: Flight) -> None:
        self._settle_all(flight, Kind.TIMEOUT, "the deadline passed")

    # ---- what others say

    def cancelled(self, job_id: str, rows: set[str]) -> None:
        """The producer cancelled rows."""
        for flight in self._of_job(job_id):
            self._cancel_rows(flight, rows)

    def silent(self, producer: str) -> None:
        """A producer is gone."""
        for flight in list(self.flights.values()):
            if flight.producer == producer and flight.open_rows:
                self._settle_all(flight, Kind.CANCELLED, "the producer is gone")

    def lost_members(self, members: list[str]) -> None:
        """Executions that are somebody else's now."""
        for member in members:
            flight = self.flights.get(member)
            if flight is not None and not flight.is_ended:
                self.lost(flight)

    def stop_job(self, job_id: str, run: str | None = None) -> bool:
        """RQ's stop-job and stop-execution. Returns whether there was something to stop."""
        found = [f for f in self._of_job(job_id) if run is None or f.run == run]
        for flight in found:
            for row in sorted(flight.open_rows):
                said = "stopped by rq's stop command"
                self._stop_row(flight, row, Kind.CANCELLED, said)
            self.places.drop(flight)
            flight.verdict = Verdict("stopped", Kind.CANCELLED, "stopped by rq's stop command")
            self.delivery.push(flight)
        return bool(found)

    def lost(self, flight: Flight) -> None:
        """Drop a flight whose execution is no longer ours."""
        if flight.is_lost or flight.is_ended:
            return
        flight.is_lost = True
        self.counts.lost += 1
        logger.warning("execution lost job=%s rows=%d", flight.job_id, len(flight.open_rows))
        self._abandon(flight)

    def _abandon(self, flight: Flight) -> None:
        flight.unsent.clear()
        flight.open_rows.clear()
        self.places.drop(flight)
        for task in list(flight.tasks.values()):
            task.cancel()
        self._forget(flight)

    def _ended(self, flight: Flight, has_dependents: bool) -> None:
        if has_dependents:
            self._on_dependents(flight)
        self._forget(flight)

    def _forget(self, flight: Flight) -> None:
        if flight.timer is not None:
            flight.timer.cancel()
        self.flights.pop(flight.member, None)
        if not self.flights:
            self._empty.set()
        self._on_room()

    # ---- leaving

    async def emptied(self) -> None:
        """Wait until no flight is in hand."""
        await self._empty.wait()

    async def return_all(self) -> None:
        """Deliver what is ready and put every flight back that is not done, starts unspent."""
        self.places.close()
        for flight in list(self.flights.values()):
            for task in list(flight.tasks.values()):
                task.cancel()
        await asyncio.sleep(0)
        await self.delivery.drained()
        for flight in list(self.flights.values()):
            await self._return(flight)

    async def _return(self, flight: Flight) -> None:
        rows = ["*"] if flight.counted_whole else [str(row) for row in flight.counted]
        back = await self._loop.run_in_executor(
            self._thread, give_back, self._attempts, flight, self._worker, rows
        )
        logger.info("job put back job=%s rows=%d", flight.job_id, len(flight.open_rows))
        self.counts.returned += bool(back)
        flight.is_lost = True
        self._abandon(flight)

    async def close(self) -> None:
        """End the tasks that are left, and the thread."""
        tasks = [task for flight in self.flights.values() for task in flight.tasks.values()]
        for task in [*tasks, *self._tasks]:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_WAIT_S)
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._attempts.close()

    def _of_job(self, job_id: str) -> list[Flight]:
        return [flight for flight in self.flights.values() if flight.job_id == job_id]

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
