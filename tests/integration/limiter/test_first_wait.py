"""A process that waits for the first time beats when its turn comes, not three seconds later."""

from __future__ import annotations

import time

from limiter import Limiter, Limits


async def seconds_of(limiter: Limiter) -> float:
    """How long one lease takes to come."""
    began = time.monotonic()
    lease = await limiter.acquire(timeout_s=30)
    took_s = time.monotonic() - began
    await lease.release()
    return took_s


async def test_the_first_wait_of_an_owner_ends_when_the_bucket_says(redis_url: str) -> None:
    limits = Limits(name="first", rpm=300, burst_s=0.2)  # one, and then one each 0.2 s
    one, other = Limiter(redis_url, limits), Limiter(redis_url, limits)
    try:
        await seconds_of(one)
        assert await seconds_of(other) < 2.0
    finally:
        await one.close()
        await other.close()


async def test_so_does_a_wait_after_a_quiet_time(redis_url: str) -> None:
    limits = Limits(name="quiet", rpm=300, burst_s=0.2)
    one, other = Limiter(redis_url, limits), Limiter(redis_url, limits)
    try:
        await seconds_of(other)
        owner = other.owner()
        owner._beat_at = owner.loop.time()  # its keeper has nothing to keep, and ends
        owner._nudge.set()
        if owner._keeper is not None:
            await owner._keeper
        await seconds_of(one)
        assert await seconds_of(other) < 2.0
    finally:
        await one.close()
        await other.close()
