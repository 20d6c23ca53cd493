"""Leases that a reward function takes by itself, for async functions and for sync ones."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Any, Self

from worker.rewards.errors import RateLimited
from worker.scoring.limits import LEASE_S, CallLimits

RENEW_EVERY_S = LEASE_S / 3


class CallLease:
    """A lease as the function holds it; what is not said here is the limiter's own lease."""

    def __init__(self, call: CallLimits, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self.settled = False
        self._call, self._options = call, options
        self._lease: Any = None

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._lease, attribute)

    def _waits_for_usage(self, error: BaseException | None) -> bool:
        return error is None and not self.settled and self._call.settling.expected


class Face:
    """One limit during one call; what is not said here is the limiter's own."""

    lease_class: type[CallLease]

    def __init__(self, call: CallLimits, name: str, limiter: Any) -> None:
        self._call, self._name, self._limiter = call, name, limiter

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._limiter, attribute)

    def _options(self, timeout_s: float | None, more: dict[str, Any]) -> dict[str, Any]:
        return {"lease_s": LEASE_S, **more, "timeout_s": self._call.timeout_s(timeout_s)}


class AsyncLease(CallLease):
    """`async with limits[name].lease(tokens=…) as lease`."""

    async def __aenter__(self) -> Self:
        call = self._call
        await close_pending(call, None)
        with call.clock.waiting():
            self._lease = await call.limiters[self.name].acquire(**self._options)
        call.last = self
        return self

    async def settle(self, tokens: int) -> None:
        """State what was really used."""
        await self._lease.settle(tokens)
        self.settled = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RateLimited):
            await throttle(self._call, error)
        if self._waits_for_usage(error):
            self._call.pending = self
        elif error is None:
            await self._lease.release()
        else:
            with contextlib.suppress(Exception):  # the function's own error counts
                await self._lease.release()

    async def finish(self, usage: int | None) -> None:
        """Give the place back, with what the function said it used."""
        await self._lease.release(tokens=usage)


class AsyncFace(Face):
    """One limit for an async function."""

    def __init__(self, call: CallLimits, name: str) -> None:
        super().__init__(call, name, call.limiters[name])

    def lease(self, *, tokens: int = 0, timeout_s: float | None = None, **more: Any) -> AsyncLease:
        """A lease, renewed while its block runs; waits no longer than the row's budget allows."""
        options = {"tokens": tokens, **self._options(timeout_s, more)}
        return AsyncLease(self._call, self._name, options)

    async def acquire(
        self, *, tokens: int = 0, timeout_s: float | None = None, **more: Any
    ) -> AsyncLease:
        """A lease without a block: release it yourself."""
        lease = self.lease(tokens=tokens, timeout_s=timeout_s, **more)
        return await lease.__aenter__()


async def close_pending(call: CallLimits, usage: int | None) -> None:
    """Release the lease that waited for `usage`; at most one does."""
    pending, call.pending = call.pending, None
    if pending is not None:
        await pending.finish(usage)


async def throttle(call: CallLimits, error: RateLimited) -> None:
    """Pause the limit for every process, once a call; a pause that fails is not the row's fault."""
    if (found := call.to_throttle(error)) is not None:
        limiter, fence = found
        with contextlib.suppress(Exception):
            await limiter.throttle(retry_after_s=error.retry_after_s, fence=fence)


class SyncLease(CallLease):
    """`with limits[name].lease(tokens=…) as lease`, in threads and helper processes."""

    def __enter__(self) -> Self:
        call = self._call
        close_pending_sync(call, None)
        renews = self._options.pop("renew", True)
        with call.clock.waiting():
            self._lease = call.limiters[self.name].sync.acquire(**self._options)
        call.last = self
        if renews:
            RENEWER.add(self._lease, call)
        return self

    def settle(self, tokens: int) -> None:
        """State what was really used."""
        self._lease.settle(tokens)
        self.settled = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RateLimited):
            throttle_sync(self._call, error)
        if self._waits_for_usage(error):
            self._call.pending = self
        elif error is None:
            self._end(None)
        else:
            with contextlib.suppress(Exception):  # the function's own error counts
                self._end(None)

    def finish(self, usage: int | None) -> None:
        """Give the place back, with what the function said it used."""
        self._end(usage)

    def _end(self, usage: int | None) -> None:
        RENEWER.drop(self._lease)
        self._lease.release(tokens=usage)


class SyncFace(Face):
    """One limit for a sync function."""

    def __init__(self, call: CallLimits, name: str) -> None:
        super().__init__(call, name, call.limiters[name].sync)

    def lease(self, *, tokens: int = 0, timeout_s: float | None = None, **more: Any) -> SyncLease:
        """A lease, renewed while its block runs; waits no longer than the row's budget allows."""
        options = {"tokens": tokens, **self._options(timeout_s, more)}
        return SyncLease(self._call, self._name, options)

    def acquire(self, *, tokens: int = 0, timeout_s: float | None = None, **more: Any) -> SyncLease:
        """A lease without a block: release it yourself."""
        return self.lease(tokens=tokens, timeout_s=timeout_s, **more).__enter__()


def close_pending_sync(call: CallLimits, usage: int | None) -> None:
    """Release the lease that waited for `usage`; at most one does."""
    pending, call.pending = call.pending, None
    if pending is not None:
        pending.finish(usage)


def throttle_sync(call: CallLimits, error: RateLimited) -> None:
    """Pause the limit for every process, once a call."""
    if (found := call.to_throttle(error)) is not None:
        limiter, fence = found
        with contextlib.suppress(Exception):
            limiter.sync.throttle(retry_after_s=error.retry_after_s, fence=fence)


class _Renewer:
    """Renews the leases of sync functions from one thread, until their call is over.

    A helper that is killed stops renewing, so its lease frees its place LEASE_S later at most.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, tuple[Any, CallLimits]] = {}
        self._thread: threading.Thread | None = None

    def add(self, lease: Any, call: CallLimits) -> None:
        """Renew this lease from now on."""
        with self._lock:
            self._held[id(lease)] = (lease, call)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="rewardpool-lease-renewer", daemon=True
                )
                self._thread.start()

    def drop(self, lease: Any) -> None:
        """Renew it no more."""
        with self._lock:
            self._held.pop(id(lease), None)

    def _run(self) -> None:
        while True:
            time.sleep(RENEW_EVERY_S)
            with self._lock:
                held = list(self._held.values())
            for lease, call in held:
                if call.over:
                    self.drop(lease)
                    continue
                with contextlib.suppress(Exception):  # lost, or Redis is away: its end will say so
                    lease.renew()


RENEWER = _Renewer()
