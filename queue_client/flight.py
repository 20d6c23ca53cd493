"""What is in flight: jobs by id, their rows' futures, and who is overdue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from queue_client.futures import RewardFuture
from queue_client.outcome import Outcome
from queue_client.room import Room

Told = Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class Job:
    """One job as its producer sees it; times are on the monotonic clock, seconds.

    `futures` [rows] holds None where the row is resolved. `payload` stays until the last row is, so
    that rows can be sent again when Redis has lost its data.
    """

    id: str
    queue: str
    function: str
    futures: list[RewardFuture | None]
    payload: bytes = field(repr=False)
    sent_at: float
    deadline: float | None
    server: str | None = None  # which run of which server it was sent to
    resends: int = 0
    news_at: float = 0.0
    checked_at: float = 0.0
    missed: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        self.left = sum(future is not None for future in self.futures)
        self.news_at = self.checked_at = self.sent_at
        for row, future in enumerate(self.futures):
            if future is not None:
                future.job_id, future.row = self.id, row

    @property
    def open_rows(self) -> list[int]:
        """Rows without an outcome."""
        return [row for row, future in enumerate(self.futures) if future is not None]


class Flight:
    """The book of one producer. Thread-safe; futures are resolved outside its lock."""

    def __init__(self, room: Room, told: Told) -> None:
        self.room = room
        self._told = told
        self._jobs: dict[str, Job] = {}
        self._unsent: set[RewardFuture] = set()
        self._lock = threading.Lock()
        self.occupied = threading.Event()
        self.late = 0  # outcomes for rows that had one

    def expect(self, futures: Iterable[RewardFuture]) -> None:
        """Note futures that are on their way to a job; their places are taken already."""
        with self._lock:
            self._unsent.update(futures)
            self.occupied.set()

    def add(self, job: Job) -> None:
        """Note a job, before it is sent: its outcomes may come before the reply of its enqueue."""
        with self._lock:
            self._jobs[job.id] = job
            for row, future in enumerate(job.futures):
                if future is None or future not in self._unsent:
                    job.left -= 1  # given up in between
                    job.futures[row] = None
                else:
                    self._unsent.discard(future)
            if not job.left:
                del self._jobs[job.id]

    def move(self, old: Job, rows: Sequence[int], make: Callable[..., Job]) -> Job | None:
        """Move a lost job's rows to a job of their own, `make(futures=…)`; None if none is open."""
        with self._lock:
            if self._jobs.pop(old.id, None) is None:
                return None
            new = make(futures=[old.futures[row] for row in rows])
            if not new.left:
                self._note_empty()
                return None
            self._jobs[new.id] = new
            return new

    def get(self, job_id: str) -> Job | None:
        """Return a job that has open rows."""
        return self._jobs.get(job_id)

    def jobs(self) -> list[Job]:
        """Return all jobs that have open rows, in the order they were sent."""
        with self._lock:
            return list(self._jobs.values())

    def futures(self) -> list[RewardFuture]:
        """Return every future that is not resolved."""
        with self._lock:
            held = [f for job in self._jobs.values() for f in job.futures if f is not None]
            return [*held, *self._unsent]

    def orphans(self) -> list[RewardFuture]:
        """Return the same in a forked child, where a thread that is gone may hold the lock."""
        held = [f for job in list(self._jobs.values()) for f in job.futures if f is not None]
        return [*held, *list(self._unsent)]

    def settle(self, job_id: str, row: int, outcome: Outcome) -> bool:
        """Resolve one row; False if nobody waits for it (any more)."""
        with self._lock:
            job = self._jobs.get(job_id)
            future = job.futures[row] if job and 0 <= row < len(job.futures) else None
            if job is None or future is None:
                self.late += 1
                return False
            self._strike(job, row)
        return self._resolve(future, outcome)

    def end(self, future: RewardFuture, outcome: Outcome) -> bool:
        """Resolve one future from this side: its deadline, a cancel, an unsendable row."""
        return self.forget(future) and self._resolve(future, outcome)

    def fail(self, future: RewardFuture, error: Exception) -> bool:
        """Resolve one future with an error."""
        if not self.forget(future):
            return False
        self.room.give_back(1)
        return future.fail(error)

    def release(self, future: RewardFuture) -> bool:
        """Strike a cancelled future out and free its place."""
        if not self.forget(future):
            return False
        self.room.give_back(1)
        return True

    def forget(self, future: RewardFuture) -> bool:
        """Strike a future out without resolving it; False if it was out already."""
        with self._lock:
            if future in self._unsent:
                self._unsent.discard(future)
                self._note_empty()
                return True
            job = self._jobs.get(future.job_id or "")
            if job is None or job.futures[future.row] is not future:
                return False
            self._strike(job, future.row)
            return True

    def _strike(self, job: Job, row: int) -> None:
        job.futures[row] = None
        job.left -= 1
        job.news_at = time.monotonic()
        if not job.left:
            self._jobs.pop(job.id, None)
            self._note_empty()

    def _note_empty(self) -> None:
        if not self._jobs and not self._unsent:
            self.occupied.clear()

    def _resolve(self, future: RewardFuture, outcome: Outcome) -> bool:
        """Count first, wake last: whoever wakes finds the books in order."""
        outcome = future.label(outcome)
        self._told(outcome)
        self.room.give_back(1)
        return future.settle(outcome)
