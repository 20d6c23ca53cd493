"""Admission in this process: places and buckets granted together, in order of arrival.

Nothing here belongs to an event loop or a thread, and nothing runs in the background: only the
caller at the head of the line sleeps, so each one wakes once or twice however many wait.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

_EPSILON = 1e-9


class Bucket:
    """`rate` tokens a second into at most `capacity`; full at first. Callers hold the gate's lock.

    What costs more than `capacity` either waits until as much has flowed in (`accrues`), or is
    let through by a full bucket, which then owes the rest.
    """

    def __init__(self, rate: float, capacity: float, *, accrues: bool) -> None:
        self.rate, self.capacity, self.accrues = rate, capacity, accrues
        self.level = capacity
        self.updated: float | None = None  # on the monotonic clock, seconds

    def refill(self, now: float, cost: float) -> None:
        """Let in what has flowed since; whoever waits for `cost` may see it grow to that."""
        if self.updated is not None:
            most = max(self.capacity, cost) if self.accrues else self.capacity
            self.level = min(most, self.level + max(0.0, now - self.updated) * self.rate)
        self.updated = now

    def wait_s(self, cost: float) -> float:
        """Seconds until this cost is let through; 0 for now."""
        needed = cost if self.accrues else min(cost, self.capacity)
        missing = needed - self.level
        if cost == 0 or missing <= _EPSILON:
            return 0.0
        return missing / self.rate


class _Waiter:
    __slots__ = ("loop", "woken")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.woken = asyncio.Event()


class Gate:
    """A line of callers before `places` (None for as many as come) and any number of buckets."""

    def __init__(self, buckets: Sequence[Bucket], places: int | None = None) -> None:
        self.buckets, self.places = tuple(buckets), places
        self.taken = 0
        self._line: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    async def acquire(
        self, costs: Sequence[float], *, place: bool = True, timeout_s: float | None = None
    ) -> None:
        """Take a place and these tokens, a cost a bucket, all at the same moment.

        Raises TimeoutError; then, or cancelled, nothing is taken.
        """
        with self._lock:
            self._forget_closed()
            if not self._line and self._try(costs, place):
                return
            waiter = _Waiter()
            self._line.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_first(waiter, costs, place)
        except BaseException:
            with self._lock, suppress(ValueError):
                self._line.remove(waiter)
                self._wake_first()
            raise

    def release(self) -> None:
        """Give a place back; from any thread."""
        with self._lock:
            self.taken -= 1
            self._wake_first()

    def give_back(self, bucket: int, tokens: float) -> None:
        """Return tokens that were not used, or with a negative number charge more."""
        with self._lock:
            one = self.buckets[bucket]
            one.level = min(one.capacity, one.level + tokens)
            self._wake_first()

    def level(self, bucket: int) -> float:
        """What was in a bucket when it was last looked at."""
        with self._lock:
            return self.buckets[bucket].level

    async def _until_first(self, waiter: _Waiter, costs: Sequence[float], place: bool) -> None:
        while True:
            with self._lock:
                waiter.woken.clear()
                pause_s = math.inf
                if self._line[0] is waiter:
                    if self._try(costs, place):
                        self._line.popleft()
                        self._wake_first()
                        return
                    pause_s = self._pause_s(costs, place)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(pause_s) else pause_s):
                    await waiter.woken.wait()

    def _try(self, costs: Sequence[float], place: bool) -> bool:
        now = time.monotonic()
        pairs = list(zip(self.buckets, costs, strict=True))
        for bucket, cost in pairs:
            bucket.refill(now, cost)
        if self._pause_s(costs, place) > 0:
            return False
        for bucket, cost in pairs:
            bucket.level -= cost
        self.taken += place
        return True

    def _pause_s(self, costs: Sequence[float], place: bool) -> float:
        """Seconds until the head may go; infinite if it waits for a place."""
        if place and self.places is not None and self.taken >= self.places:
            return math.inf
        pairs = zip(self.buckets, costs, strict=True)
        return max((bucket.wait_s(cost) for bucket, cost in pairs), default=0.0)

    def _wake_first(self) -> None:
        while self._line:
            try:
                self._line[0].loop.call_soon_threadsafe(self._line[0].woken.set)
            except RuntimeError:  # its loop is closed: it will never go
                self._line.popleft()
            else:
                return

    def _forget_closed(self) -> None:
        while self._line and self._line[0].loop.is_closed():
            self._line.popleft()
