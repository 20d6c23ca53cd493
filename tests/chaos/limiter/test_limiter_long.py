"""The long runs: many more histories, and kills at every point."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from limiter import Limiter, Limits

FOLDER = Path(__file__).parents[2]
for part in ("property", "integration"):
    sys.path.append(str(FOLDER / part / "limiter"))

from limiter_histories import History  # noqa: E402

pytestmark = pytest.mark.chaos
WORKER = FOLDER / "integration" / "limiter" / "limiter_worker.py"


def test_two_thousand_histories_agree_with_the_model(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        for seed in range(10_000, 12_000):
            History(client, seed).run(500)
        client.flushall()


def start(spec: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WORKER), json.dumps([spec])])


async def test_processes_killed_at_random_points_leave_nothing_for_long(
    redis_url: str, tmp_path: Path
) -> None:
    """Twenty processes, each killed while it holds, waits, asks or releases."""
    draw = random.Random(3)
    limits = {"name": "matrix", "max_concurrent": 4, "rpm": 60_000}
    limiter = Limiter(redis_url, Limits(**limits))
    for number in range(20):
        spec = {"url": redis_url, "limits": limits, "file": str(tmp_path / str(number))}
        spec |= {"tasks": 12, "call_s": draw.choice((0.0, 0.01, 0.2)), "seconds": 60, "lease_s": 2}
        process = start(spec)
        grants = (await limiter.usage()).grants
        while (await limiter.usage()).grants <= grants + draw.randrange(60):
            assert process.poll() is None
            await asyncio.sleep(0.002)
        await asyncio.sleep(draw.random() * 0.05)
        process.kill()
        process.wait()
        assert (await limiter.usage()).in_flight <= 4
    leases = await asyncio.gather(*(limiter.acquire(timeout_s=40) for _ in range(4)))
    usage = await limiter.usage()
    assert (usage.in_flight, usage.waiting) == (4, 0)
    for lease in leases:
        await lease.release()
    await limiter.close()


async def test_killed_connections_lose_no_waiter(redis_url: str) -> None:
    limiter = Limiter(redis_url, Limits(name="cut", max_concurrent=3, tpm=600_000))
    done = 0

    async def calls() -> None:
        nonlocal done
        for _ in range(40):
            async with limiter.lease(tokens=5):
                await asyncio.sleep(0.005)
            done += 1

    async def cut() -> None:
        with redis.Redis.from_url(redis_url) as client:
            while done < 20 * 40:
                for other in await asyncio.to_thread(client.client_list):
                    if int(other["id"]) != client.client_id():
                        client.client_kill_filter(_id=other["id"])
                await asyncio.sleep(0.3)

    began = time.monotonic()
    await asyncio.gather(cut(), *(calls() for _ in range(20)))
    usage = await limiter.usage()
    assert usage.waiting == 0
    assert usage.grants == 800, f"in {time.monotonic() - began:.0f} s"
    await limiter.close()
