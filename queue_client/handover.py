"""Handing futures over under back-pressure, blocking a thread or awaiting on a loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

from queue_client.arrivals import Arrivals
from queue_client.batch import TrajectoryBatch
from queue_client.futures import RewardFuture
from queue_client.jobs import Parcel
from queue_client.link import Link
from queue_client.metrics import Meter
from queue_client.outcome import Kind, Outcome
from queue_client.tie import Tie
from queue_client.trajectory import Trajectory

Trajectories = Iterable[Trajectory] | TrajectoryBatch

SLICE = 1024  # rows that take their places together when a call waits for room


class Handover:
    """The way of one call's futures into the link; `parcel` makes a parcel of some of them."""

    def __init__(
        self,
        futures: Sequence[RewardFuture],
        parcel: Callable[[Sequence[RewardFuture]], Parcel],
        meter: Meter,
    ) -> None:
        self._futures, self._parcel, self._meter = futures, parcel, meter

    def run(self, link: Link) -> None:
        """Hand all over; waits for room, or raises QueueFull and hands nothing over."""
        if link.options.when_full == "raise":
            link.room.take(len(self._futures))
            self._submit(link, self._futures)
            return
        for part in self._slices(link):
            if link.room.wait(len(part), part[0].deadline):
                self._submit(link, part)
            else:
                self._no_room(part)

    async def run_async(self, link: Link) -> None:
        """The same without blocking the loop."""
        if link.options.when_full == "raise":
            self.run(link)
            return
        for part in self._slices(link):
            if await link.room.wait_async(len(part), part[0].deadline):
                self._submit(link, part)
            else:
                self._no_room(part)

    async def stream(self, tie: Tie) -> AsyncGenerator[RewardFuture, None]:
        """Hand all over and yield each future when it is done. Left early, cancel the rest."""
        arrivals = Arrivals()
        for future in self._futures:
            arrivals.watch(future)
        # connecting blocks; a link that is there is had without the cost of a thread
        link = tie.get() if tie.link is not None else await asyncio.to_thread(tie.get)
        sending = asyncio.create_task(self.run_async(link))
        sending.add_done_callback(lambda task: _report(task, arrivals))
        left = len(self._futures)
        try:
            while left:
                for future in await arrivals.next():
                    left -= 1
                    yield future
        finally:
            sending.cancel()
            if left:
                for future in self._futures:
                    future.cancel()

    def _slices(self, link: Link) -> Iterator[Sequence[RewardFuture]]:
        size = min(SLICE, link.options.max_in_flight)
        for start in range(0, len(self._futures), size):
            yield self._futures[start : start + size]

    def _submit(self, link: Link, futures: Sequence[RewardFuture]) -> None:
        if futures:
            self._meter.began(len(futures))
            link.submit(self._parcel(futures))

    def _no_room(self, futures: Sequence[RewardFuture]) -> None:
        """The deadline passed before there was room; these rows were never in flight."""
        self._meter.began(len(futures))
        for future in futures:
            waited_s = time.monotonic() - future.born
            outcome = Outcome.failed(
                Kind.TIMEOUT,
                f"no room within {waited_s:.1f} s: max_in_flight was reached",
                attempts=0,
                wait_s=waited_s,
            )
            self._meter.told(outcome)
            future.settle(future.label(outcome))


def _report(task: asyncio.Task[None], arrivals: Arrivals) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        arrivals.fail(error)


def rows_of(trajectories: Trajectories) -> list[Trajectory]:
    """Return the trajectories as a list. Raises TypeError, naming the row, for anything else."""
    if isinstance(trajectories, TrajectoryBatch):
        return list(trajectories.trajectories)
    if isinstance(trajectories, Trajectory) or not isinstance(trajectories, Iterable):
        found = type(trajectories).__name__
        raise TypeError(f"trajectories: a list of Trajectory expected (got {found})")
    rows = list(trajectories)
    for row, one in enumerate(rows):
        if not isinstance(one, Trajectory):
            raise TypeError(f"trajectories[{row}]: Trajectory expected (got {type(one).__name__})")
    return rows


def deadline_of(timeout_s: float | None) -> float | None:
    """Return the instant on the monotonic clock that is so many seconds away; None for none."""
    return None if timeout_s is None else time.monotonic() + timeout_s
