"""Stream a rollout file through the pool: order kept, memory flat, one result for every line."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

from queue_client import BadTrajectory, Kind, Outcome, RewardClient, WireError
from queue_client.futures import RewardFuture
from queue_client.rollouts import Rollout, read_rollouts
from worker.ops.summary import Summary

#: What may be under way at once. Rows bound the futures, bytes the texts.
WINDOW_ROWS = 2048
WINDOW_BYTES = 16 * 1024 * 1024
SUBMIT_ROWS = 128
SUBMIT_BYTES = 2 * 1024 * 1024

UNREADABLE = "(unreadable lines)"
NO_SOURCE = "(no data source)"
MATHS = "(maths verifier)"


#: How often a waiting run shows how far it is, seconds.
TICK_S = 0.2


class Progress:
    """How many rows are done, in whatever order; counted from the client's reader thread too."""

    def __init__(self) -> None:
        self.done = self.failed = 0
        self._rewarded, self._total = 0, 0.0
        self._lock = threading.Lock()

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        with self._lock:
            self.done += 1
            self.failed += not outcome.ok
            if outcome.reward is not None:
                self._rewarded += 1
                self._total += outcome.reward

    @property
    def mean(self) -> float | None:
        """Mean reward so far."""
        with self._lock:
            return self._total / self._rewarded if self._rewarded else None

    def add_future(self, future: Future[Outcome]) -> None:
        """Count a future's outcome once it is there."""
        if not future.cancelled() and future.exception() is None:
            self.add(future.result())


@dataclass(slots=True)
class _Row:
    id: Any
    source: str
    size: int
    result: RewardFuture | Outcome


class ScoreRun:
    """One file on its way through a client; results are written in the order of its lines."""

    def __init__(
        self,
        client: RewardClient,
        out: TextIO,
        *,
        timeout_s: float,
        maths_by_default: bool = False,
        on_tick: Callable[[Progress], None] | None = None,
    ) -> None:
        self.summary, self.progress = Summary(), Progress()
        self._client, self._out, self._timeout_s = client, out, timeout_s
        self._maths_by_default, self._on_tick = maths_by_default, on_tick
        self._pending: deque[_Row] = deque()
        self._bytes = 0

    def run(self, stream: BinaryIO) -> Summary:
        """Score every line; returns when the last result is written."""
        for chunk in _chunks(read_rollouts(stream)):
            self._submit(chunk)
            self._write_finished()
            self._tick()
            while len(self._pending) > WINDOW_ROWS or self._bytes > WINDOW_BYTES:
                self._write_first()
        while self._pending:
            self._write_first()
        self._tick()
        return self.summary

    def cancel(self) -> None:
        """Give up what is under way; nothing more is written."""
        self._client.cancel([r.result for r in self._pending if isinstance(r.result, RewardFuture)])

    def _submit(self, chunk: list[Rollout]) -> None:
        good = [rollout for rollout in chunk if rollout.trajectory is not None]
        results = iter(self._futures(good))
        for rollout in chunk:
            if rollout.trajectory is None:
                result: RewardFuture | Outcome = Outcome.failed(
                    Kind.BAD_INPUT, rollout.error or "", attempts=0
                )
            else:
                result = next(results)
            if isinstance(result, RewardFuture):
                result.add_done_callback(self.progress.add_future)
            else:
                self.progress.add(result)
            self._pending.append(_Row(rollout.id, self._source(rollout), rollout.size, result))
            self._bytes += rollout.size

    def _futures(self, good: list[Rollout]) -> list[RewardFuture | Outcome]:
        """One result each; rows that cannot be sent fail alone."""
        trajectories = [rollout.trajectory for rollout in good if rollout.trajectory is not None]
        if not trajectories:
            return []
        try:
            return list(self._client.submit(trajectories, timeout_s=self._timeout_s))
        except (BadTrajectory, WireError) as error:
            if len(good) == 1:
                message = f"line {good[0].number}: {error}"
                return [Outcome.failed(Kind.BAD_INPUT, message, attempts=0)]
            return [result for rollout in good for result in self._futures([rollout])]

    def _source(self, rollout: Rollout) -> str:
        trajectory = rollout.trajectory
        if trajectory is None:
            return UNREADABLE
        if trajectory.data_source is not None:
            return trajectory.data_source
        if not self._maths_by_default or trajectory.ground_truth is None:
            return NO_SOURCE
        self.summary.by_default += 1
        return MATHS

    def _write_finished(self) -> None:
        while self._pending:
            result = self._pending[0].result
            if isinstance(result, RewardFuture) and not result.done():
                return
            self._write_first()

    def _write_first(self) -> None:
        row = self._pending[0]
        if isinstance(row.result, RewardFuture):
            while not wait([row.result], TICK_S).done:
                self._tick()
            outcome = row.result.result()
        else:
            outcome = row.result
        self._pending.popleft()
        self._bytes -= row.size
        self._out.write(json.dumps(result_line(row.id, outcome)) + "\n")
        self.summary.add(row.id, row.source, outcome)

    def _tick(self) -> None:
        if self._on_tick is not None:
            self._on_tick(self.progress)


def _chunks(rollouts: Iterator[Rollout]) -> Iterator[list[Rollout]]:
    chunk: list[Rollout] = []
    size = 0
    for rollout in rollouts:
        chunk.append(rollout)
        size += rollout.size
        if len(chunk) >= SUBMIT_ROWS or size >= SUBMIT_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def result_line(row_id: Any, outcome: Outcome) -> dict[str, Any]:
    """One line of a result file; always the same keys."""
    error = None
    if outcome.kind is not None:
        error = {
            "kind": outcome.kind.value,
            "message": outcome.message,
            "retryable": outcome.retryable,
        }
    return {
        "id": row_id,
        "status": outcome.status,
        "reward": outcome.reward,
        "extra": outcome.extra,
        "error": error,
        "attempts": outcome.attempts,
        "wait_s": round(outcome.wait_s, 6),
        "run_s": round(outcome.run_s, 6),
    }
