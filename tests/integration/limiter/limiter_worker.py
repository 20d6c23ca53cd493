"""One process of a fleet: holds or uses leases and records what it did, a JSON line a call.

`limiter_worker.py JSON`: url, limits (keyword arguments), file, tasks, call_s, seconds; with
`mode` "hold" it takes its leases, says so on standard output, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from typing import Any

import redis.asyncio

from limiter import AcquireTimeout, Lease, Limiter, Limits
from limiter.keys import Keys


class Worker:
    """What one process does with one limit."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.limiter = Limiter(spec["url"], Limits(**spec["limits"]))
        self.keys = Keys.of(spec["limits"]["name"])
        self.redis = redis.asyncio.Redis.from_url(spec["url"])
        self.numbers = itertools.count()
        self.out = open(spec["file"], "w", encoding="utf-8")  # noqa: SIM115 - closed at the end
        self.lease_s = spec.get("lease_s", 20)
        self.until = time.monotonic() + spec["seconds"]

    async def run(self) -> None:
        await asyncio.gather(*(self._calls() for _ in range(self.spec["tasks"])))
        await self.limiter.close()
        await self.redis.aclose()
        self.out.close()

    async def _calls(self) -> None:
        while (left_s := self.until - time.monotonic()) > 0:
            number = next(self.numbers)
            try:
                lease = await self.limiter.acquire(tokens=1, timeout_s=left_s, lease_s=self.lease_s)
            except AcquireTimeout:
                return
            began = time.monotonic()
            granted_ms = await self._granted_ms(lease)
            await asyncio.sleep(max(0.0, self.spec["call_s"] - (time.monotonic() - began)))
            ended = time.monotonic()
            self._note(number, lease, granted_ms, began, ended)
            await lease.release()

    async def _granted_ms(self, lease: Lease) -> int:
        record = await self.redis.hget(self.keys.all[2], lease.id)
        return int(record.split()[4])

    def _note(self, number: int, lease: Lease, granted_ms: int, began: float, ended: float) -> None:
        call = {"number": number, "id": lease.id, "fence": lease.fence, "granted_ms": granted_ms}
        self.out.write(json.dumps(call | {"began": began, "ended": ended}) + "\n")


async def hold(spec: dict[str, Any]) -> None:
    """Take leases, or stand in line, until killed."""
    limiter = Limiter(spec["url"], Limits(**spec["limits"]))
    for _ in range(spec.get("leases", 0)):
        await limiter.acquire(lease_s=spec["lease_s"])
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(spec.get("waiters", 0))]
    while waiting and (await limiter.usage()).waiting < spec["waiting"]:
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.sleep(3600)


async def main(specs: list[dict[str, Any]]) -> None:
    if specs[0].get("mode") == "hold":
        await hold(specs[0])
        return
    await asyncio.gather(*(Worker(spec).run() for spec in specs))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
