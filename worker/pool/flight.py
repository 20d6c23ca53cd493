"""One job in a worker's hands: which rows are left, and what became of the others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from queue_client import protocol
from queue_client.outcome import Kind, Outcome
from queue_client.trajectory import Trajectory
from worker.pool import names

Ending = Literal["", "finished", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a whole job ends without outcomes of its own: dead letter, or stopped on request."""

    status: Literal["failed", "stopped"]
    kind: Kind
    message: str


@dataclass(slots=True, eq=False)
class Flight:
    """One execution of one job.

    `starts` holds each row's starts before this execution. Times: `deadline` on the monotonic
    clock, `started_s` seconds since 1970, `queued_s` seconds between sending and taking.
    """

    job_id: str
    queue: str
    run: str
    rows: int = 0
    trajectories: Sequence[Trajectory] = ()
    tool: bytes | None = None
    todo: list[int] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    counted_whole: bool = False
    deadline: float = math.inf
    queued_s: float = 0.0
    taken_at: float = 0.0
    started_s: float = 0.0
    result_ttl_s: int = protocol.RESULT_TTL_S
    failure_ttl_s: int = protocol.FAILURE_TTL_S
    verdict: Verdict | None = None
    takes: int = 0  # since any row of the job could start
    # what changes
    open_rows: set[int] = field(default_factory=set)
    unsent: list[tuple[int, Outcome]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    is_lost: bool = False
    is_ended: bool = False
    scored: int = 0

    @property
    def member(self) -> str:
        """Its entry in RQ's registry of executions."""
        return f"{self.job_id}:{self.run}"

    @property
    def producer(self) -> str | None:
        """Who waits for it."""
        return protocol.producer_of(self.job_id)

    @property
    def ending(self) -> Ending:
        """What becomes of the job once everything unsent has been sent."""
        if self.verdict is not None:
            return self.verdict.status
        return "" if self.open_rows else "finished"

    def settle(self, row: int, outcome: Outcome) -> bool:
        """Note a row's outcome; the first one counts. Returns whether it was this one."""
        if row not in self.open_rows or self.is_lost or self.verdict is not None:
            return False
        self.open_rows.discard(row)
        self.scored += outcome.ok
        self.unsent.append((row, outcome))
        return True

    def attempt(self, row: int) -> int:
        """Starts of a row, the one in this execution included."""
        return self.starts.get(row, 0) + 1

    def keys(self, worker: str) -> list[str]:
        """The keys of `pool_deliver.lua`, in its order."""
        ended = "finished" if self.verdict is None else "failed"
        return [
            names.wip_key(self.queue),
            names.job_key(self.job_id),
            names.execution_key(self.job_id, self.run),
            names.executions_key(self.job_id),
            names.rq_worker_key(worker),
            names.holds_key(worker),
            names.results_key(self.job_id),
            names.registry_key(ended, self.queue),
            protocol.payload_key(self.job_id),
            protocol.outcomes_key(self.job_id),
            protocol.attempts_key(self.job_id),
            protocol.cancel_key(self.job_id),
            protocol.reply_key(self.producer or "nobody"),
            protocol.stats_key(self.queue),
            names.dependents_key(self.job_id),
        ]
