"""Which row runs next: places, and rows that may have killed a worker before.

A row that was in flight when a worker died is a suspect. Suspects start a few at a time, so that
the next death leaves few of them; the last start a row is allowed is made with no other suspect
beside it and nothing else starting, so that a death then has one culprit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from worker.pool.flight import Flight

Entry = tuple[Flight, int]

FIRST_WINDOW = 16  # suspects in flight at once, to begin with
WIDENING = 2  # places more for each suspect that survives
LONE_WAIT_S = 10.0  # a last start waits this long for what else is in flight


class Places:
    """The places of one worker process. Lives on the event loop; `free` may be read anywhere."""

    def __init__(
        self, concurrency: int, *, max_attempts: int, start: Callable[[Flight, int], None]
    ) -> None:
        self.concurrency, self._max_attempts, self._start = concurrency, max_attempts, start
        self._fresh: deque[Entry] = deque()
        self._suspects: deque[Entry] = deque()
        self._last: deque[Entry] = deque()
        self._running: dict[Entry, str] = {}
        self._suspects_running = 0
        self._window = FIRST_WINDOW
        self._lone: Entry | None = None
        self._lone_since: float | None = None
        self.is_closed = False

    @property
    def running(self) -> int:
        """Rows in flight."""
        return len(self._running)

    @property
    def free(self) -> int:
        """Places left once everything that waits here has one; may be negative."""
        waiting = len(self._fresh) + len(self._suspects) + len(self._last)
        return self.concurrency - len(self._running) - waiting

    def add(self, flight: Flight, rows: list[int]) -> None:
        """Let rows start as soon as there is a place for them."""
        for row in rows:
            starts = flight.starts.get(row, 0)
            if starts == 0:
                self._fresh.append((flight, row))
            elif starts < self._max_attempts - 1:
                self._suspects.append((flight, row))
            else:
                self._last.append((flight, row))
        self.pump()

    def done(self, flight: Flight, row: int) -> None:
        """Give back a row's place."""
        how = self._running.pop((flight, row), None)
        if how is None:
            return
        if (flight, row) == self._lone:
            self._lone = None
        if how != "fresh":
            self._suspects_running -= 1
            self._window = min(self._window + WIDENING, self.concurrency)
        if not self._suspects and self._suspects_running == 0:
            self._window = FIRST_WINDOW
        self.pump()

    def drop(self, flight: Flight) -> None:
        """Forget the waiting rows of a flight."""
        for waiting in (self._fresh, self._suspects, self._last):
            if any(entry[0] is flight for entry in waiting):
                kept = [entry for entry in waiting if entry[0] is not flight]
                waiting.clear()
                waiting.extend(kept)
        self.pump()

    def close(self) -> None:
        """Start nothing any more."""
        self.is_closed = True

    def pump(self) -> None:
        """Start what may start now; call it now and then while a last start waits its turn."""
        while not self.is_closed:
            chosen = self._next()
            if chosen is None:
                return
            entry, how = chosen
            if entry[1] not in entry[0].open_rows:
                continue
            self._running[entry] = how
            if how == "last":
                self._lone = entry
            self._suspects_running += how != "fresh"
            self._start(*entry)

    def _next(self) -> tuple[Entry, str] | None:
        if self._lone is not None:
            return None
        if self._last:
            return self._next_alone()
        if len(self._running) >= self.concurrency:
            return None
        if self._suspects and self._suspects_running < self._window:
            return self._suspects.popleft(), "suspect"
        if self._fresh:
            return self._fresh.popleft(), "fresh"
        return None

    def _next_alone(self) -> tuple[Entry, str] | None:
        now = time.monotonic()
        self._lone_since = now if self._lone_since is None else self._lone_since
        waited_enough = now - self._lone_since >= LONE_WAIT_S
        if self._running and (self._suspects_running or not waited_enough):
            return None
        self._lone_since = None
        return self._last.popleft(), "last"
