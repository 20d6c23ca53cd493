"""Reward functions that call an upstream under the limit `judge`."""

from __future__ import annotations

import asyncio
import urllib.request

import httpx


async def call_async(solution_str, extra_info, limits):
    async with limits["judge"].lease(tokens=100), httpx.AsyncClient(timeout=30) as client:
        await client.get(extra_info["url"])
    return 1.0


def call_sync(solution_str, extra_info, limits):
    with limits["judge"].lease(tokens=100), urllib.request.urlopen(extra_info["url"]) as reply:
        reply.read()
    return 1.0


async def hold(solution_str, extra_info, limits):
    async with limits["judge"].lease(tokens=1):
        async with httpx.AsyncClient(timeout=30) as client:
            await client.get(extra_info["url"])
        await asyncio.sleep(extra_info["hold_s"])
    return 1.0
