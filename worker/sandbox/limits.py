"""Holding a place at the server while a request is on its way, and only then.

The place is given back when the server has answered or never got the request. After a read timeout
or a cancelled call the server may still be running the program, so the lease is left to run out:
`lease_s` is above the server's own limit on a run. A killed worker's calls end the same way.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from limiter.errors import LeaseLost
from worker.sandbox.calls import Fault, Pause, Reply


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


def gives_back(answer: Reply | Fault) -> bool:
    """Whether the place is free again after this answer."""
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
    if limit is not None and lease is not None and gives_back(answer):
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
    if limit is not None and lease is not None and gives_back(answer):
        with suppress(LeaseLost):
            lease.release()


def throttle_sync(limit: Limit | None, lease: Lease | None, pause: Pause) -> None:
    """Tell every process about a 429."""
    if limit is not None and pause.throttle_s is not None:
        fence = lease.fence if lease else 0
        limit.throttle(retry_after_s=pause.throttle_s, fence=fence)
