"""Holding a place at the server while a request is on its way, and only then.

The place is given back when the server has answered or never got the request. After a read timeout
or a cancelled call the server may still be running the program, so the lease is left to run out:
`lease_s` is above the server's own limit on a run. A killed worker's calls end the same way.
"""

from __future__ import annotations

from typing import Any, Protocol

from worker.sandbox.calls import Fault, Pause, Reply


class Lease(Protocol):
    """What a granted lease has; `release` is a coroutine on the asynchronous face."""

    fence: int

    def release(self) -> Any:
        """Give the place back."""


class Limit(Protocol):
    """One face of a limiter: the asynchronous one, or its `sync`."""

    def acquire(self, *, timeout_s: float | None, lease_s: float) -> Any:
        """Return a lease, or raise when none was to be had in time."""

    def throttle(self, retry_after_s: float, fence: int | None = None) -> Any:
        """Pause the limit for every process."""


def gives_back(answer: Reply | Fault) -> bool:
    """Whether the place is free again after this answer."""
    return isinstance(answer, Reply) or not answer.server_may_be_busy


async def acquire(limit: Limit | None, *, timeout_s: float | None, lease_s: float) -> Lease | None:
    """Take a place on the asynchronous face; None without a limit."""
    if limit is None:
        return None
    lease: Lease = await limit.acquire(timeout_s=timeout_s, lease_s=lease_s)
    return lease


async def settle(limit: Limit | None, lease: Lease | None, answer: Reply | Fault) -> None:
    """Give the place back if it is free again."""
    if limit is not None and lease is not None and gives_back(answer):
        await lease.release()


async def throttle(limit: Limit | None, lease: Lease | None, pause: Pause) -> None:
    """Tell every process about a 429."""
    if limit is not None and pause.throttle_s is not None:
        await limit.throttle(pause.throttle_s, lease.fence if lease else None)


def acquire_sync(limit: Limit | None, *, timeout_s: float | None, lease_s: float) -> Lease | None:
    """Take a place on the blocking face; None without a limit."""
    if limit is None:
        return None
    lease: Lease = limit.acquire(timeout_s=timeout_s, lease_s=lease_s)
    return lease


def settle_sync(limit: Limit | None, lease: Lease | None, answer: Reply | Fault) -> None:
    """Give the place back if it is free again."""
    if limit is not None and lease is not None and gives_back(answer):
        lease.release()


def throttle_sync(limit: Limit | None, lease: Lease | None, pause: Pause) -> None:
    """Tell every process about a 429."""
    if limit is not None and pause.throttle_s is not None:
        limit.throttle(pause.throttle_s, lease.fence if lease else None)
