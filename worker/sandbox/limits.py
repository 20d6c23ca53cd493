"""Holding a place at the server while a request is on its way, and only then.

The place is given back when the server has answered or never got the request. After a read timeout
or a cancelled call the server may still be running the program, so the lease is left to run out:
`lease_s` is above the server's own limit on a run. A killed worker's calls end the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, Self

from limiter.errors import LeaseLost
from worker.sandbox.calls import Fault, Pause, Reply

#: Makes a block during which a row waits for a place on this machine: not its run time.
Waiting = Callable[[], AbstractContextManager[None]]


class Lease(Protocol):
    """What a granted lease has; `release` is a coroutine on the asynchronous face."""

    fence: int

    def release(self) -> Any:
        """Give the place back."""


class Limit(Protocol):
    """A limiter, or a view of one: the asynchronous face, or the blocking one."""

    def acquire(self, *, timeout_s: float | None = None, lease_s: float = 60.0) -> Any:
        """Return a lease, or raise when none was to be had in time."""

    def throttle(self, *, retry_after_s: float, fence: int = 0) -> Any:
        """Pause the limit for every process."""


class SemaphoreLimit:
    """A semaphore as the blocking face of a limit, for callers of verl's old functions."""

    #: A semaphore does not run out: it is given back whatever the server does.
    expires = False
    fence = 0

    def __init__(self, semaphore: Any) -> None:
        self._semaphore = semaphore

    def acquire(self, *, timeout_s: float | None = None, lease_s: float = 60.0) -> Self:
        """Take it, for as long as that takes."""
        self._semaphore.acquire()
        return self

    def release(self) -> None:
        """Give it back."""
        self._semaphore.release()

    def throttle(self, *, retry_after_s: float, fence: int = 0) -> None:
        """A semaphore cannot be told."""


def gives_back(limit: Limit, answer: Reply | Fault) -> bool:
    """Whether the place is free again after this answer."""
    if not getattr(limit, "expires", True):
        return True
    return isinstance(answer, Reply) or not answer.server_may_be_busy


async def acquire(limit: Limit | None, *, timeout_s: float | None, lease_s: float) -> Lease | None:
    """Take a place on the asynchronous face; None without a limit."""
    if limit is None:
        return None
    # not renewed: a place whose call was given up is free when the server is done, not before
    options: dict[str, Any] = {"timeout_s": timeout_s, "lease_s": lease_s, "renew": False}
    lease: Lease = await limit.acquire(**options)
    return lease


async def settle(limit: Limit | None, lease: Lease | None, answer: Reply | Fault) -> None:
    """Give the place back if it is free again."""
    if limit is not None and lease is not None and gives_back(limit, answer):
        with suppress(LeaseLost):  # slower than its own limits, but this is the answer
            await lease.release()


async def throttle(limit: Limit | None, lease: Lease | None, pause: Pause) -> None:
    """Tell every process about a 429."""
    if limit is not None and pause.throttle_s is not None:
        fence = lease.fence if lease else 0
        await limit.throttle(retry_after_s=pause.throttle_s, fence=fence)


def acquire_sync(limit: Limit | None, *, timeout_s: float | None, lease_s: float) -> Lease | None:
    """Take a place on the blocking face; None without a limit."""
    if limit is None:
        return None
    lease: Lease = limit.acquire(timeout_s=timeout_s, lease_s=lease_s)
    return lease


def settle_sync(limit: Limit | None, lease: Lease | None, answer: Reply | Fault) -> None:
    """Give the place back if it is free again."""
    if limit is not None and lease is not None and gives_back(limit, answer):
        with suppress(LeaseLost):
            lease.release()


def throttle_sync(limit: Limit | None, lease: Lease | None, pause: Pause) -> None:
    """Tell every process about a 429."""
    if limit is not None and pause.throttle_s is not None:
        fence = lease.fence if lease else 0
        limit.throttle(retry_after_s=pause.throttle_s, fence=fence)
