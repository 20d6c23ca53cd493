"""Reward functions that take limits: the called server is a Redis key with a record of calls."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager

import redis

from worker.rewards import RateLimited


@contextmanager
def served(extra_info):
    """A call as the called server sees it: how many are inside, and when each began."""
    with redis.Redis.from_url(extra_info["url"]) as server:
        inside = server.incr("test:inside")
        server.zadd("test:calls", {f"{time.time()}:{id(server)}": time.time()})
        server.zadd("test:most", {"most": inside}, gt=True)
        for key in ("test:inside", "test:calls", "test:most"):
            server.expire(key, 600)
        try:
            yield
        finally:
            server.decr("test:inside")


async def judge(solution_str, extra_info, limits):
    """Async: one lease, one call."""
    async with limits["judge"].lease(tokens=100):
        with served(extra_info):
            await asyncio.sleep(extra_info.get("call_s", 0))
    return 1.0


def judge_sync(solution_str, extra_info, limits):
    """Sync: the same with the same words."""
    with limits["judge"].lease(tokens=100), served(extra_info):
        time.sleep(extra_info.get("call_s", 0))
    return 1.0


async def settles(solution_str, limits):
    """Reserve 100, use 40."""
    async with limits["judge"].lease(tokens=100) as lease:
        await lease.settle(tokens=40)
    return 1.0


async def says_usage(solution_str, limits):
    """Reserve 100, return what was used."""
    async with limits["judge"].lease(tokens=100):
        await asyncio.sleep(0)
    return {"score": 1.0, "usage": {"total_tokens": 30}}


def says_usage_sync(solution_str, limits):
    """The same, sync."""
    with limits["judge"].lease(tokens=100):
        pass
    return {"score": 1.0, "usage": 30}


async def twice(solution_str, limits):
    """Two leases one after the other on a limit with one place."""
    for _ in range(2):
        async with limits["judge"].lease(tokens=10):
            await asyncio.sleep(0)
    return 1.0


async def meets_429(solution_str, extra_info, limits):
    """The first call of all is told to slow down."""
    async with limits["judge"].lease(tokens=1):
        with served(extra_info), redis.Redis.from_url(extra_info["url"]) as server:
            if server.set("test:told", 1, nx=True, ex=60):
                raise RateLimited(retry_after_s=1.0)
    return 1.0


def meets_429_sync(solution_str, extra_info, limits):
    """The same, sync."""
    server = redis.Redis.from_url(extra_info["url"])
    with limits["judge"].lease(tokens=1), served(extra_info), server:
        if server.set("test:told", 1, nx=True, ex=60):
            raise RateLimited(retry_after_s=1.0)
    return 1.0


async def holds(solution_str, extra_info, limits):
    """Hold a lease for as long as the row says."""
    async with limits["judge"].lease(tokens=1):
        await asyncio.sleep(extra_info["call_s"])
    return 1.0


def holds_sync(solution_str, extra_info, limits):
    """The same, sync."""
    with limits["judge"].lease(tokens=1):
        time.sleep(extra_info["call_s"])
    return 1.0


async def asks_for_another(solution_str, limits):
    """Name a limit that is not there."""
    async with limits["jugde"].lease(tokens=1):
        return 1.0


async def plain_call(solution_str, extra_info):
    """A function under the rate-limited manager: knows no limits."""
    with served(extra_info):
        await asyncio.sleep(extra_info.get("call_s", 0))
    return {"score": 1.0, "usage": extra_info.get("usage")}


def cost_of(solution_str, extra_info):
    """An estimator."""
    return 3 * len(solution_str)


async def told_once(solution_str, extra_info):
    """Under a manager's lease: the first call of all is told to slow down."""
    with served(extra_info), redis.Redis.from_url(extra_info["url"]) as server:
        if server.set("test:told", 1, nx=True, ex=60):
            raise RateLimited(retry_after_s=1.0)
    return 1.0


async def in_order(solution_str, extra_info, limits):
    """Write down when the lease came."""
    async with limits["judge"].lease(tokens=1):
        with redis.Redis.from_url(extra_info["url"]) as server:
            server.rpush("test:order", extra_info["at"])
            server.expire("test:order", 600)
    return 1.0
