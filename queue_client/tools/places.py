"""Places: how many calls of one tool may be in flight, on every host or in this process.

With a Redis address the limit is the cluster's, under its own name; without one it is this
process's, which is said once, loudly.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Protocol

logger = logging.getLogger(__name__)

LEASE_S = 60.0


class Places(Protocol):
    """The blocking face of a limit."""

    def acquire(self, *, timeout_s: float | None = None, lease_s: float = LEASE_S) -> Any:
        """Return a lease."""

    def throttle(self, *, retry_after_s: float, fence: int = 0) -> Any:
        """Pause it."""

    def usage(self) -> Any:
        """Return what is taken: `in_flight`."""


class ProcessPlaces:
    """At most `most` at once in this process; a place that is not given back runs out."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._ends: dict[int, float] = {}
        self._changed = threading.Condition()
        self._paused_until = 0.0
        self._numbers = itertools.count(1)

    @property
    def in_flight(self) -> int:
        """How many places are taken."""
        with self._changed:
            self._forget(time.monotonic())
            return len(self._ends)

    def acquire(self, *, timeout_s: float | None = None, lease_s: float = LEASE_S) -> ProcessLease:
        """Take a place. Raises TimeoutError when none was free in time."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                now = time.monotonic()
                self._forget(now)
                if len(self._ends) < self.most and self._paused_until <= now:
                    number = next(self._numbers)
                    self._ends[number] = now + lease_s
                    return ProcessLease(self, number, lease_s)
                if end is not None and now >= end:
                    raise TimeoutError(f"no place of {self.most} was free in time")
                nexts = [each for each in (end, self._next(now)) if each is not None]
                self._changed.wait(max(0.001, min(nexts) - now) if nexts else None)

    def throttle(self, *, retry_after_s: float, fence: int = 0) -> None:
        """Grant nothing for so long."""
        with self._changed:
            self._paused_until = max(self._paused_until, time.monotonic() + retry_after_s)

    def usage(self) -> ProcessPlaces:
        """Return itself: it has `in_flight`."""
        return self

    def hold(self, number: int, lease_s: float) -> None:
        """Let a place last so long from now."""
        with self._changed:
            if number in self._ends:
                self._ends[number] = time.monotonic() + lease_s

    def give_back(self, number: int) -> None:
        """One place is free again."""
        with self._changed:
            self._ends.pop(number, None)
            self._changed.notify()

    def _forget(self, now: float) -> None:
        for number in [number for number, end in self._ends.items() if end <= now]:
            del self._ends[number]

    def _next(self, now: float) -> float | None:
        """When something changes by itself: a pause ends, or a place runs out."""
        if self._paused_until > now:
            return self._paused_until
        return min(self._ends.values(), default=None)


class ProcessLease:
    """A place in this process; a second release does nothing."""

    fence = 0

    def __init__(self, places: ProcessPlaces, number: int, lease_s: float) -> None:
        self._places, self._number, self._lease_s = places, number, lease_s

    def renew(self) -> None:
        """Let it last its whole time from now."""
        self._places.hold(self._number, self._lease_s)

    def release(self) -> None:
        """Give it back."""
        self._places.give_back(self._number)


@lru_cache(maxsize=64)
def places(name: str, most: int, redis_url: str | None) -> Places:
    """Return the limit of that name, the same object for the same arguments."""
    if redis_url is None:
        logger.warning("limit is for this process only, no redis_url given limit=%s", name)
        return ProcessPlaces(most)
    from limiter import Limiter, Limits

    face: Places = Limiter(redis_url, Limits(name=name, max_concurrent=most)).sync
    return face


@contextmanager
def held(limit: Places | None, *, timeout_s: float | None = None) -> Iterator[None]:
    """Hold a place for as long as the block runs, however long; nothing without a limit."""
    if limit is None:
        yield
        return
    lease = limit.acquire(timeout_s=timeout_s, lease_s=LEASE_S)
    keep(lease)
    try:
        yield
    finally:
        drop(lease)


def keep(lease: Any) -> None:
    """Renew a lease from now on."""
    _KEEPER.add(lease)


def drop(lease: Any) -> None:
    """Renew a lease no more and give it back."""
    _KEEPER.drop(lease)
    with suppress(Exception):  # lost or unreachable: it runs out by itself
        lease.release()


class _Keeper:
    """Renews what is held from one thread; a process that dies renews no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    def add(self, lease: Any) -> None:
        with self._lock:
            self._leases[id(lease)] = lease
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="rewardpool-tool-leases", daemon=True
                )
                self._thread.start()

    def drop(self, lease: Any) -> None:
        with self._lock:
            self._leases.pop(id(lease), None)

    def _run(self) -> None:
        while True:
            time.sleep(LEASE_S / 3)
            with self._lock:
                leases = list(self._leases.values())
            for lease in leases:
                with suppress(Exception):  # lost: the end of its block does not mind
                    lease.renew()


_KEEPER = _Keeper()
