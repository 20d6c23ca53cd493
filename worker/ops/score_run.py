"""Stream a rollout file through the pool: order kept, memory flat, one result for every line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

from queue_client import BadTrajectory, Kind, Outcome, RewardClient, WireError
from queue_client.rollouts import Rollout, read_rollouts
from worker.ops.summary import Summary

#: What may be under way at once. Rows bound the futures, bytes the texts.
WINDOW_ROWS = 4096
WINDOW_BYTES = 24 * 1024 * 1024
SUBMIT_ROWS = 256
SUBMIT_BYTES = 2 * 1024 * 1024

UNREADABLE = "(unreadable lines)"
NO_SOURCE = "(no data source)"
MATHS = "(maths verifier)"


@dataclass(slots=True)
class _Row:
    id: Any
    source: str
    size: int
    result: Future[Outcome] | Outcome


class ScoreRun:
    """One file on its way through a client; results are written in the order of its lines."""

    def __init__(
        self,
        client: RewardClient,
        out: TextIO,
        *,
        timeout_s: float,
        maths_by_default: bool = False,
        on_row: Callable[[Summary], None] | None = None,
    ) -> None:
        self.summary = Summary()
        self._client, self._out, self._timeout_s = client, out, timeout_s
        self._maths_by_default, self._on_row = maths_by_default, on_row
        self._pending: deque[_Row] = deque()
        self._bytes = 0

    def run(self, stream: BinaryIO) -> Summary:
        """Score every line; returns when the last result is written."""
        for chunk in _chunks(read_rollouts(stream)):
            self._submit(chunk)
            self._write_finished()
            while len(self._pending) > WINDOW_ROWS or self._bytes > WINDOW_BYTES:
                self._write_first()
        while self._pending:
            self._write_first()
        return self.summary

    def cancel(self) -> None:
        """Give up what is under way; nothing more is written."""
        self._client.cancel([r.result for r in self._pending if isinstance(r.result, Future)])

    def _submit(self, chunk: list[Rollout]) -> None:
        good = [rollout for rollout in chunk if rollout.trajectory is not None]
        results = iter(self._futures(good))
        for rollout in chunk:
            if rollout.trajectory is None:
                result: Future[Outcome] | Outcome = Outcome.failed(
                    Kind.BAD_INPUT, rollout.error or "", attempts=0
                )
            else:
                result = next(results)
            self._pending.append(_Row(rollout.id, self._source(rollout), rollout.size, result))
            self._bytes += rollout.size

    def _futures(self, good: list[Rollout]) -> list[Future[Outcome] | Outcome]:
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
            if isinstance(result, Future) and not result.done():
                return
            self._write_first()

    def _write_first(self) -> None:
        row = self._pending.popleft()
        self._bytes -= row.size
        outcome = row.result.result() if isinstance(row.result, Future) else row.result
        self._out.write(json.dumps(result_line(row.id, outcome)) + "\n")
        self.summary.add(row.id, row.source, outcome)
        if self._on_row is not None:
            self._on_row(self.summary)


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
