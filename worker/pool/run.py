"""One run of a worker: threads that take, beat and sweep around the loop that scores."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker.pool.describing import describe
from worker.pool.flight import Flight
from worker.pool.heart import Heart, HeartSays
from worker.pool.loop import TICK_S, Engine, PoolLoop
from worker.pool.reading import Taken, flight_of
from worker.pool.scripts import own_connection
from worker.pool.sweeper import Sweeper
from worker.pool.take import BLOCK_S, Taker, TakerFacts
from worker.settings import Settings

if TYPE_CHECKING:
    from worker.pool.worker import PoolWorker

logger = logging.getLogger("rewardpool.pool")

SOCKET_TIMEOUT_S = 5.0
JOIN_S = BLOCK_S + 2.0
LAST_WORDS_S = 10.0  # for what is ready to be delivered, once the worker stops


class WorkerCrashed(RuntimeError):
    """A part of the worker ended that never should."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """When a run ends by itself."""

    burst: bool = False
    max_jobs: int | None = None
    max_idle_s: float | None = None


class PoolRun:
    """Built and used on the event loop; `until_stopped` is its whole life."""

    def __init__(
        self, worker: PoolWorker, engine: Engine, settings: Settings, options: RunOptions
    ) -> None:
        self._worker, self._options = worker, options
        self._all_settings, self._settings = settings, settings.worker
        self._loop = asyncio.get_running_loop()
        self._stop, self._cold = asyncio.Event(), asyncio.Event()
        self._in_transit = 0
        self._reserved: dict[str, int] = {}
        self._described: dict[str, str] = {}
        self.pool = PoolLoop(
            engine,
            self._connect(),
            self._connect(),
            worker=worker.name,
            concurrency=self._settings.concurrency,
            max_attempts=self._settings.max_attempts,
            on_room=self._on_room,
            on_dependents=self._on_dependents,
        )
        self.taker = Taker(
            self._connect,
            TakerFacts(worker.name, worker.queue_names(), self._settings.expiry_s),
            free=self._free,
            held=self._held,
            accept=self._accept,
            order=worker.order_queues,
        )
        self.taker.jobs_left = options.max_jobs
        self._heart_connection = self._connect()
        self.heart = Heart(
            self._heart_connection,
            worker=worker.name,
            beat_s=self._settings.heartbeat_s,
            expiry_s=self._settings.expiry_s,
            frozen_s=self._settings.frozen_s,
            flights=lambda: list(self.pool.flights.values()),
            facts=self._facts,
            state=self._state,
            says=HeartSays(
                lost=self._from_thread(self.pool.lost_members),
                cancelled=self._from_thread(self.pool.cancelled),
                silent=self._from_thread(self.pool.silent),
                forgotten=lambda: worker.register_again(self._heart_connection),
            ),
        )
        self.sweeper = Sweeper(
            self._connect(),
            worker.queue_names(),
            sweep_s=self._settings.sweep_s,
            beat_s=self._settings.heartbeat_s,
        )

    # ---- life

    async def until_stopped(self) -> bool:
        """Work until told to stop. Returns whether any job was taken; raises if a part crashed."""
        self._described = await self._loop.run_in_executor(None, describe, self._all_settings)
        delivering = self._loop.create_task(self.pool.delivery.run(), name="deliver")
        for thread in (self.heart, self.sweeper, self.taker):
            thread.start()
        self._tick()
        watching = self._loop.create_task(self._watch(delivering), name="watch")
        try:
            await watching
            await self._wind_down()
        finally:
            await self._end_threads()
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)
            await self.pool.close()
            self.pool.delivery.close()
        return self.pool.counts.jobs > 0

    def stop_warm(self) -> None:
        """Take nothing more; finish what is in hand, for `stop_s` at most."""
        self.taker.stop()
        self._stop.set()

    def stop_cold(self) -> None:
        """Put back what is in hand."""
        self.stop_warm()
        self._cold.set()

    def stop_job(self, job_id: str, run: str | None) -> None:
        """Stop one job; may be called from any thread."""
        self._loop.call_soon_threadsafe(self.pool.stop_job, job_id, run)

    async def _watch(self, delivering: asyncio.Task[None]) -> None:
        while not self._stop.is_set():
            if delivering.done():
                raise WorkerCrashed("delivering outcomes ended") from delivering.exception()
            for thread in (self.taker, self.heart, self.sweeper):
                if not thread.is_alive() and not self._stop.is_set():
                    raise WorkerCrashed(f"the thread {thread.name} ended")
            if self._is_finished():
                self.stop_warm()
            self.pool.places.pump()
            try:
                await asyncio.wait_for(self._stop.wait(), 0.05 if self._options.burst else TICK_S)
            except TimeoutError:
                continue

    def _is_finished(self) -> bool:
        if self.pool.flights or self._in_transit:
            return False
        options = self._options
        if options.burst and self.taker.rounds > 0:
            return self.taker.is_suspended or self.taker.looked_in_vain
        if options.max_jobs is not None and self.taker.jobs_left == 0:
            return True
        idle_s = time.monotonic() - self.taker.idle_since
        return options.max_idle_s is not None and idle_s >= options.max_idle_s

    async def _wind_down(self) -> None:
        """Let the taker end, finish or put back what is in hand, deliver what is ready."""
        await self._loop.run_in_executor(None, self.taker.join, JOIN_S)
        await asyncio.sleep(0)
        emptied = self._loop.create_task(self.pool.emptied())
        cold = self._loop.create_task(self._cold.wait())
        await asyncio.wait(
            {emptied, cold},
            timeout=self._settings.stop_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in (emptied, cold):
            task.cancel()
        if self.pool.flights:
            try:
                await asyncio.wait_for(self.pool.return_all(), LAST_WORDS_S)
            except Exception as error:  # noqa: BLE001 - the sweep finds what is left
                logger.warning("jobs left to the sweep jobs=%d error=%r",
                               len(self.pool.flights), error)  # fmt: skip
        await asyncio.wait_for(self.pool.delivery.drained(), LAST_WORDS_S)

    async def _end_threads(self) -> None:
        for thread in (self.taker, self.heart, self.sweeper):
            thread.stop()
        for thread in (self.taker, self.heart, self.sweeper):
            if thread.ident is not None:
                await self._loop.run_in_executor(None, thread.join, JOIN_S)

    def _tick(self) -> None:
        self.heart.tick()
        self._loop.call_later(TICK_S, self._tick)

    # ---- what the threads ask and say

    def _connect(self) -> Any:
        return own_connection(self._worker.connection, socket_timeout_s=SOCKET_TIMEOUT_S)

    def _free(self) -> int:
        return self.pool.places.free - self._in_transit

    def _held(self) -> set[str]:
        return {*self.pool.flights, *self._reserved}

    def _accept(self, jobs: list[Taken]) -> None:
        """In the taker's thread: read each job, then hand it to the loop."""
        for job in jobs:
            flight = flight_of(
                job,
                self._worker.connection,
                self._worker.serializer,
                max_attempts=self._settings.max_attempts,
            )
            rows = len(flight.open_rows)
            self._reserved[flight.member] = rows
            self._in_transit += rows
            self._loop.call_soon_threadsafe(self._land, flight, job)

    def _land(self, flight: Flight, job: Taken) -> None:
        lives = job.producer_lives or not self.heart.trusts_producers()
        try:
            self.pool.accept(flight, cancelled=job.cancelled, producer_lives=lives)
        finally:
            self._in_transit -= self._reserved.pop(flight.member, 0)

    def _on_room(self) -> None:
        self.taker.wake()

    def _on_dependents(self, flight: Flight) -> None:
        self._loop.run_in_executor(None, self._enqueue_dependents, flight.job_id)

    def _enqueue_dependents(self, job_id: str) -> None:
        worker = self._worker
        try:
            job = worker.job_class.fetch(job_id, worker.connection, worker.serializer)
            for queue in worker.queues:
                if queue.name == job.origin:
                    queue.enqueue_dependents(job)
        except Exception:
            logger.exception("dependents not enqueued job=%s", job_id)

    def _from_thread(self, method: Any) -> Any:
        def call(*args: Any) -> None:
            self._loop.call_soon_threadsafe(method, *args)

        return call

    def _state(self) -> str:
        if self.taker.is_suspended:
            return "suspended"
        return "busy" if self.pool.flights else "idle"

    def _facts(self) -> dict[str, str | int]:
        worker = self._worker
        return {
            "host": str(worker.hostname),
            "pid": int(worker.pid or 0),
            "version": _version(),
            "queues": ",".join(worker.queue_names()),
            "concurrency": self._settings.concurrency,
            "in_flight": self.pool.places.running,
            "clock_ms": self.heart.clock_ms,
            **self._described,
        }


def _version() -> str:
    from importlib.metadata import version

    return version("rewardpool")
