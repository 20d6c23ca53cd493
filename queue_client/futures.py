"""The promise of one outcome."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Any, Protocol

from queue_client.errors import ClientClosed
from queue_client.outcome import Outcome
from queue_client.trajectory import Trajectory


class Owner(Protocol):
    """Whoever is told that somebody gave a future up."""

    def give_up(self, future: RewardFuture) -> None:
        """Take the row off the pool; the future is cancelled already."""


class RewardFuture(Future[Outcome]):
    """One trajectory's outcome, sooner or later: a `concurrent.futures.Future` that can be awaited.

    `result()` returns an Outcome, failed ones included. It raises PoolUnavailable when Redis stayed
    away, NoWorker if the client was told to raise it, ClientClosed, or CancelledError after
    `cancel()`. `deadline` is on the monotonic clock, seconds; None for none.
    """

    def __init__(
        self,
        trajectory: Trajectory | None = None,
        owner: Owner | None = None,
        *,
        deadline: float | None = None,
    ) -> None:
        super().__init__()
        self.trajectory = trajectory  # dropped once it is encoded
        self.uid = None if trajectory is None else trajectory.uid
        self.deadline = deadline
        self.born = time.monotonic()
        self.job_id: str | None = None
        self.row = -1
        self._owner = owner
        self._cancelling = threading.Lock()

    def cancel(self) -> bool:
        """Give the outcome up: the row is taken off the queue or stopped. False if it is done."""
        with self._cancelling:
            before = self.cancelled()
            if not super().cancel():
                return False
            if before:
                return True
            self.set_running_or_notify_cancel()  # or concurrent.futures.wait would not see it
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.give_up(self)
        return True

    def label(self, outcome: Outcome) -> Outcome:
        """Return the outcome under this trajectory's uid, whatever came over the wire."""
        return outcome if outcome.uid == self.uid else replace(outcome, uid=self.uid)

    def settle(self, outcome: Outcome) -> bool:
        """Resolve with an outcome; False if it was resolved before: the first one counts."""
        try:
            self.set_result(outcome)
        except InvalidStateError:
            return False
        self._owner = self.trajectory = None
        return True

    def fail(self, error: Exception) -> bool:
        """Resolve with an error; False if the future was resolved before."""
        try:
            self.set_exception(error)
        except InvalidStateError:
            return False
        self._owner = self.trajectory = None
        return True

    def orphan(self) -> None:
        """After a fork, in the child: the answer will come to the parent alone.

        The lock may have been held by a thread that does not exist here, so it is replaced; whoever
        was to be called back lives in the parent.
        """
        self._condition = threading.Condition()
        self._cancelling = threading.Lock()
        self._done_callbacks: list[Any] = []
        self._waiters: list[Any] = []
        self.fail(ClientClosed("this future was made before the fork; the parent has its outcome"))

    def __await__(self) -> Generator[Any, None, Outcome]:
        return asyncio.wrap_future(self).__await__()
