"""One turn under concurrency, requests and tokens a minute: this process' own, or the cluster's."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

from queue_client.compat.bucket import AsyncTokenBucket
from queue_client.compat.gate import Bucket, Gate
from queue_client.compat.options import LimitedOptions


class Turn(Protocol):
    """The right to one call."""

    async def end(self) -> None:
        """Give the place back."""

    def end_from_thread(self) -> None:
        """The same from a thread that outlived its call."""


class Admission(Protocol):
    """Grants turns; `concurrency`, `rpm` and `tpm` are views by the old names."""

    concurrency: Any
    rpm: Any
    tpm: Any

    async def turn(self, tokens: int, timeout_s: float) -> Turn:
        """Wait for a turn. Raises TimeoutError, and then nothing is taken."""

    def for_another_loop(self) -> Admission:
        """Return what may be used in a loop that will soon be closed."""

    async def close(self) -> None:
        """Disconnect."""


class Concurrency:
    """The places of a gate, used as an `asyncio.Semaphore`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def _value(self) -> int:
        assert self._gate.places is not None
        return self._gate.places - self._gate.taken

    def locked(self) -> bool:
        """Whether all places are taken."""
        return self._value <= 0

    async def acquire(self) -> bool:
        """Take a place."""
        await self._gate.acquire([0.0] * len(self._gate.buckets))
        return True

    def release(self) -> None:
        """Give it back."""
        self._gate.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class _LocalTurn:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def end(self) -> None:
        self._gate.release()

    def end_from_thread(self) -> None:
        self._gate.release()


class LocalAdmission:
    """Limits of this process."""

    def __init__(self, options: LimitedOptions) -> None:
        self._costs: list[float] = []
        buckets = []
        for limit, least in ((options.max_rpm, 1.0), (options.max_tpm, 1.0)):
            if limit is not None:
                capacity = max(least, limit / 60 * options.burst_s)
                buckets.append(Bucket(limit / 60, capacity, accrues=False))
        self._gate = Gate(buckets, options.max_concurrent)
        self._has_rpm = options.max_rpm is not None
        self._has_tpm = options.max_tpm is not None
        self.concurrency: Any = Concurrency(self._gate)
        self.rpm: Any = AsyncTokenBucket.part_of(self._gate, 0) if self._has_rpm else None
        self.tpm: Any = (
            AsyncTokenBucket.part_of(self._gate, len(buckets) - 1) if self._has_tpm else None
        )

    async def turn(self, tokens: int, timeout_s: float) -> Turn:
        """Take a place, a request and the tokens, all at the moment of the call."""
        costs = [1.0] * self._has_rpm + [float(tokens)] * self._has_tpm
        await self._gate.acquire(costs, timeout_s=timeout_s)
        return _LocalTurn(self._gate)

    def for_another_loop(self) -> Admission:
        """Itself: it belongs to no loop."""
        return self

    async def close(self) -> None:
        """Nothing is open."""


class _ClusterTurn:
    def __init__(self, lease: Any) -> None:
        self._lease, self._loop = lease, asyncio.get_running_loop()

    async def end(self) -> None:
        with suppress(Exception):  # lost or unreachable: it runs out by itself
            await self._lease.release()

    def end_from_thread(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody renews it any more
            asyncio.run_coroutine_threadsafe(self.end(), self._loop)


class _ClusterBucket:
    """What the old attributes told of a bucket, for one that is the cluster's."""

    def __init__(self, limiter: Any, a_minute: float, burst_s: float, field: str) -> None:
        self._limiter, self._field = limiter, field
        self.rate_limit = self.rate = a_minute / 60
        self.max_tokens = self.capacity = max(1.0, self.rate * burst_s)

    @property
    def tokens(self) -> float:
        """What is there now."""
        return float(getattr(self._limiter.sync.usage(), self._field) or 0.0)

    async def acquire(self, num_tokens: float = 1.0) -> None:
        """Take so many, and one request."""
        lease = await self._limiter.acquire(
            tokens=int(num_tokens) if self._field == "tpm_level" else 0
        )
        await lease.release()


class _ClusterConcurrency:
    """The cluster's places, used as an `asyncio.Semaphore` in a block."""

    def __init__(self, limiter: Any, places: int) -> None:
        self._limiter, self._places = limiter, places
        self._leases: list[Any] = []

    @property
    def _value(self) -> int:
        return self._places - int(self._limiter.sync.usage().in_flight)

    def locked(self) -> bool:
        """Whether all places are taken."""
        return self._value <= 0

    async def __aenter__(self) -> None:
        self._leases.append(await self._limiter.acquire())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leases.pop().release()


class ClusterAdmission:
    """Limits that every process on every host obeys together."""

    def __init__(self, options: LimitedOptions) -> None:
        from limiter import Limiter, Limits

        assert options.redis_url is not None
        self._options = options
        limits = Limits(
            name=options.limit_name,
            max_concurrent=options.max_concurrent,
            rpm=options.max_rpm,  # type: ignore[arg-type]  # whole floats are taken
            tpm=options.max_tpm,  # type: ignore[arg-type]
            burst_s=options.burst_s,
        )
        self._limiter = Limiter(options.redis_url, limits)
        self.concurrency: Any = _ClusterConcurrency(self._limiter, options.max_concurrent)
        self.rpm: Any = self._bucket(options.max_rpm, "rpm_level")
        self.tpm: Any = self._bucket(options.max_tpm, "tpm_level")

    def _bucket(self, a_minute: float | None, field: str) -> Any:
        if a_minute is None:
            return None
        return _ClusterBucket(self._limiter, a_minute, self._options.burst_s, field)

    async def turn(self, tokens: int, timeout_s: float) -> Turn:
        """Take a lease."""
        return _ClusterTurn(await self._limiter.acquire(tokens=tokens, timeout_s=timeout_s))

    def for_another_loop(self) -> Admission:
        """A limiter of its own on the same limit."""
        return ClusterAdmission(self._options)

    async def close(self) -> None:
        """Disconnect."""
        await self._limiter.close()


def admission_of(options: LimitedOptions) -> Admission:
    """The cluster's limits where an address of Redis is known, else this process'."""
    return LocalAdmission(options) if options.redis_url is None else ClusterAdmission(options)
