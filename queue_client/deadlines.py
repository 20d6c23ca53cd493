"""The timing thread: ends what is past its deadline, whatever the connections do."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from queue_client.futures import RewardFuture
from queue_client.options import DEADLINE_GRACE_S
from queue_client.outcome import Kind, Outcome

if TYPE_CHECKING:
    from queue_client.link import Link

SHORTEST_S = 0.05


class Deadlines:
    """Resolves futures as `timeout` shortly after their deadline: the pool says so first."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._next: float | None = None
        self._changed = threading.Condition()

    def note(self, deadline: float | None) -> None:
        """Take a new deadline into account."""
        if deadline is None:
            return
        with self._changed:
            if self._next is None or deadline < self._next:
                self._next = deadline
                self._changed.notify()

    def wake(self) -> None:
        """Look whether the link closes."""
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        """Sleep until the next deadline, end what is past it, look for the one after."""
        while not self._link.closing.is_set():
            with self._changed:
                wait_s = None if self._next is None else self._due_in()
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                self._next = None
            for future in self._overdue():
                self._end(future)

    def _due_in(self) -> float:
        assert self._next is not None
        return max(0.0, self._next + DEADLINE_GRACE_S - time.monotonic())

    def _overdue(self) -> list[RewardFuture]:
        limit = time.monotonic() - DEADLINE_GRACE_S
        overdue: list[RewardFuture] = []
        for future in self._link.flight.futures():
            if future.deadline is None:
                continue
            if future.deadline <= limit:
                overdue.append(future)
            else:
                self.note(max(future.deadline, limit + SHORTEST_S))
        return overdue

    def _end(self, future: RewardFuture) -> None:
        waited_s = time.monotonic() - future.born
        message = f"no outcome within {waited_s - DEADLINE_GRACE_S:.1f} s"
        outcome = Outcome.failed(Kind.TIMEOUT, message, attempts=0, wait_s=waited_s)
        self._link.end(future, outcome)
