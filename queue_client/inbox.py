"""What the sending thread still has to do: parcels to enqueue, rows to cancel."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from queue_client.jobs import Parcel

QUIET_S = 0.001
IDLE_S = 0.005  # after that long without a submission the next one leaves at once


@dataclass(slots=True)
class Work:
    """One turn's work. `given_up` maps a job's id to its queue and the rows nobody waits for."""

    parcels: list[Parcel] = field(default_factory=list)
    given_up: dict[str, tuple[str, set[int]]] = field(default_factory=dict)


class Inbox:
    """Filled by any thread, emptied by one; gathers submissions that arrive close together."""

    def __init__(self, gather_s: float) -> None:
        self._gather_s = gather_s
        self._work = Work()
        self._rows = 0
        self._last_taken = 0.0
        self._changed = threading.Condition()
        self._closed = False

    def put(self, parcel: Parcel) -> None:
        """Leave a parcel; returns at once."""
        with self._changed:
            self._work.parcels.append(parcel)
            self._rows += len(parcel.futures)
            self._changed.notify()

    def give_up(self, job_id: str, queue: str, row: int) -> None:
        """Note that nobody waits for a row any more."""
        with self._changed:
            _, rows = self._work.given_up.setdefault(job_id, (queue, set()))
            rows.add(row)
            self._changed.notify()

    def close(self) -> None:
        """Wake the taker; nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, timeout_s: float, enough_rows: int) -> Work:
        """Return what is there: at once after a quiet spell, else gathered for at most `gather_s`.

        Waits up to `timeout_s` for the first piece; may return nothing.
        """
        with self._changed:
            if not self._something() and not self._closed:
                self._changed.wait(timeout_s)
            busy = time.monotonic() - self._last_taken < IDLE_S or len(self._work.parcels) > 1
            if self._work.parcels and busy:
                self._gather(enough_rows)
            if self._work.parcels:
                self._last_taken = time.monotonic()
            work, self._work, self._rows = self._work, Work(), 0
            return work

    def _something(self) -> bool:
        return bool(self._work.parcels or self._work.given_up)

    def _gather(self, enough_rows: int) -> None:
        """Wait while more keeps coming, but not long, and not beyond what fills some jobs."""
        until = time.monotonic() + self._gather_s
        seen = -1
        while self._rows != seen and self._rows < enough_rows and not self._closed:
            seen = self._rows
            left_s = until - time.monotonic()
            if left_s <= 0:
                return
            self._changed.wait(min(QUIET_S, left_s))
            if self._rows == seen:
                return
