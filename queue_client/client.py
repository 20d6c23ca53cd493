"""RewardClient: trajectories in, outcomes out."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, overload

from queue_client.futures import RewardFuture
from queue_client.handover import Handover, Trajectories, deadline_of, rows_of
from queue_client.jobs import Parcel
from queue_client.link import Link
from queue_client.metrics import Meter, metrics_of
from queue_client.options import (
    Connect,
    NoWorkerPolicy,
    Options,
    WhenFull,
    check_queue,
    check_timeout,
)
from queue_client.outcome import Kind, Outcome
from queue_client.progress import Progress, wait_for
from queue_client.protocol import DEFAULT_QUEUE, TOOL_FUNCTION, encode_tool_call
from queue_client.rewards import OnFailure, rewards_of
from queue_client.tie import Tie
from queue_client.trajectory import Trajectory


class RewardClient:
    """A producer's side of the pool: any number of calls in flight over two connections.

    Connects at the first call, in each process anew, so it may be made before a fork. Safe in
    threads and in several event loops at once. A context manager, sync and async.

    `queue` is the default queue (priority is by queue: workers take from the first they name),
    `rows_per_job` how many trajectories share a job at most. No more than `max_in_flight` are in
    flight: a call then waits for room, or raises QueueFull with `when_full="raise"`. A queue
    without a worker is logged after 5 s; `no_worker="raise"` also ends its calls with NoWorker.
    A lost connection is borne for `outage_s`. `connect(**options)` may return a `redis.Redis`
    made with these options in another way: from Sentinel, with credentials from a provider.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        rows_per_job: int = 32,
        max_in_flight: int = 16_384,
        when_full: WhenFull = "wait",
        no_worker: NoWorkerPolicy = "wait",
        gather_s: float = 0.005,
        connect_timeout_s: float = 5.0,
        outage_s: float = 300.0,
        connect: Connect | None = None,
    ) -> None:
        self.options = Options(
            url,
            queue=queue,
            rows_per_job=rows_per_job,
            max_in_flight=max_in_flight,
            when_full=when_full,
            no_worker=no_worker,
            gather_s=gather_s,
            connect_timeout_s=connect_timeout_s,
            outage_s=outage_s,
            connect=connect,
        )
        self._meter = Meter()
        self._tie = Tie(partial(Link, self.options, self._meter.told))
        weakref.finalize(self, self._tie.let_go).atexit = False  # there all are closed

    def submit(
        self,
        trajectories: Trajectories,
        *,
        queue: str | None = None,
        timeout_s: float | None = None,
    ) -> list[RewardFuture]:
        """Hand trajectories over; return their futures, in order, without waiting for outcomes.

        Each resolves with an outcome, at the latest 2 s after `timeout_s`. Waits for room where
        `max_in_flight` is reached. Raises PoolUnavailable if Redis cannot be reached, QueueFull.
        """
        futures = self._futures(rows_of(trajectories), timeout_s)
        self._handover(futures, queue).run(self._tie.get())
        return futures

    def score(
        self,
        trajectories: Trajectories,
        *,
        timeout_s: float | None = None,
        queue: str | None = None,
        progress: bool = False,
    ) -> list[Outcome]:
        """Return one outcome for each trajectory, in order; `progress` shows a line on stderr.

        Interrupted, it takes back what is not done.
        """
        futures = self._futures(rows_of(trajectories), timeout_s)
        bar = Progress(len(futures)) if progress else None
        try:
            if bar is not None:
                bar.watch(futures)
            self._handover(futures, queue).run(self._tie.get())
            return [wait_for(future, bar) for future in futures]
        except BaseException:
            self.cancel(futures)
            raise
        finally:
            if bar is not None:
                bar.close()

    async def score_async(
        self,
        trajectories: Trajectories,
        *,
        timeout_s: float | None = None,
        queue: str | None = None,
        progress: bool = False,
    ) -> list[Outcome]:
        """Return one outcome for each trajectory, in order. Cancelled, it takes back the rest."""
        futures = self._futures(rows_of(trajectories), timeout_s)
        bar = Progress(len(futures)) if progress else None
        try:
            async with aclosing(self._handover(futures, queue).stream(self._tie)) as done:
                async for future in done:
                    outcome = future.result()
                    if bar is not None:
                        bar.add(outcome)
        finally:
            if bar is not None:
                bar.close()
        return [future.result() for future in futures]

    async def as_completed(
        self,
        trajectories: Trajectories,
        *,
        timeout_s: float | None = None,
        queue: str | None = None,
    ) -> AsyncIterator[Outcome]:
        """Yield outcomes as they are ready; `uid` tells whose. Left early, it takes back the rest.

        To know the place of each, use `concurrent.futures.as_completed(client.submit(...))`.
        """
        futures = self._futures(rows_of(trajectories), timeout_s)
        async with aclosing(self._handover(futures, queue).stream(self._tie)) as done:
            async for future in done:
                yield future.result()

    def cancel(self, futures: Iterable[RewardFuture]) -> int:
        """Take rows off the queue, stop those that run; return how many were not done yet.

        They resolve at once with a failed outcome of kind `cancelled`.
        """
        link = self._tie.link
        outcome = Outcome.failed(Kind.CANCELLED, "cancelled by the producer", attempts=0)
        return sum(link is not None and link.end(future, outcome) for future in futures)

    @overload
    def rewards(
        self, outcomes: Iterable[Outcome], *, on_failure: Literal["mask"], fill: float = ...
    ) -> tuple[list[float], list[bool]]: ...

    @overload
    def rewards(
        self,
        outcomes: Iterable[Outcome],
        *,
        on_failure: Literal["fill", "nan", "raise"] = ...,
        fill: float = ...,
    ) -> list[float]: ...

    def rewards(
        self, outcomes: Iterable[Outcome], *, on_failure: OnFailure = "raise", fill: float = 0.0
    ) -> list[float] | tuple[list[float], list[bool]]:
        """Return the outcomes as numbers; see `queue_client.rewards.rewards_of`."""
        return rewards_of(outcomes, on_failure=on_failure, fill=fill)

    def metrics(self, outcomes: Iterable[Outcome] | None = None) -> dict[str, float]:
        """Return numbers for a trainer's log, of these outcomes or of all since the last call.

        TRL's names (`reward`, `reward_std`, `rewards/<field>/mean`, `frac_reward_zero_std`), verl's
        (`critic/score/mean`, `critic/rewards/mean`, `timing_s/reward`), `failed_frac`,
        `error/<kind>`, and the client's own counters under `rewardpool/`.
        """
        if outcomes is not None:
            return metrics_of(outcomes)
        found = self._meter.collect()
        link = self._tie.link
        found["rewardpool/submitted"] = float(self._meter.submitted)
        found["rewardpool/done"] = float(self._meter.done)
        found["rewardpool/failed"] = float(self._meter.failed)
        found["rewardpool/in_flight"] = float(link.room.taken if link else 0)
        found["rewardpool/late"] = float(link.flight.late if link else 0)
        losses = link.sender.outages + link.reader.outages if link else 0
        found["rewardpool/connection_losses"] = float(losses)
        return found

    def call_tool(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float | None = None,
        queue: str | None = None,
    ) -> RewardFuture:
        """Have a registered tool called by the pool; the outcome's `extra` is what it answered.

        Raises TypeError for arguments that are no plain values. Takes a place like a trajectory.
        """
        check_timeout(timeout_s)
        payload = encode_tool_call(tool, arguments, timeout_s=timeout_s)
        future = RewardFuture(None, self, deadline=deadline_of(timeout_s))
        queue = self._queue(queue)
        Handover(
            [future], lambda futures: Parcel(queue, futures, TOOL_FUNCTION, payload), self._meter
        ).run(self._tie.get())
        return future

    @property
    def in_flight(self) -> int:
        """Trajectories handed over in this process and not resolved."""
        link = self._tie.link
        return 0 if link is None else link.room.taken

    def close(self) -> None:
        """End every pending call with ClientClosed, take their rows back, and disconnect."""
        self._tie.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a client of its own with the same options, and no calls."""
        options = {field.name: getattr(self.options, field.name) for field in fields(self.options)}
        return _rebuilt, (options,)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def give_up(self, future: RewardFuture) -> None:
        """A future's own `cancel` tells us; called by RewardFuture."""
        if self._tie.link is not None:
            self._tie.link.give_up(future)

    def _futures(
        self, trajectories: Sequence[Trajectory], timeout_s: float | None
    ) -> list[RewardFuture]:
        check_timeout(timeout_s)
        deadline = deadline_of(timeout_s)
        return [RewardFuture(one, self, deadline=deadline) for one in trajectories]

    def _handover(self, futures: Sequence[RewardFuture], queue: str | None) -> Handover:
        chosen = self._queue(queue)
        return Handover(futures, lambda some: Parcel(chosen, some), self._meter)

    def _queue(self, queue: str | None) -> str:
        if queue is None:
            return self.options.queue
        check_queue(queue)
        return queue


def _rebuilt(options: dict[str, Any]) -> RewardClient:
    return RewardClient(options.pop("url"), **options)
