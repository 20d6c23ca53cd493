"""One process that calls an OpenAI-compatible server under a limit; writes a line a call."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from limiter import AcquireTimeout, Limiter, Limits
from limiter.keys import Keys


async def main(spec: dict[str, Any]) -> None:
    limiter = Limiter(spec["redis"], Limits(**spec["limits"]))
    until = time.monotonic() + spec["seconds"]
    draw = random.Random(spec["seed"])
    calls: list[dict[str, int]] = []
    async with httpx.AsyncClient(base_url=spec["upstream"], timeout=60) as client:
        await asyncio.gather(*(call_often(limiter, client, until, draw, calls) for _ in range(8)))
    await limiter.close()
    lines = [json.dumps(call) for call in calls]
    await asyncio.to_thread(Path(spec["file"]).write_text, "\n".join(lines), encoding="utf-8")


async def call_often(
    limiter: Limiter,
    client: httpx.AsyncClient,
    until: float,
    draw: random.Random,
    calls: list[dict[str, int]],
) -> None:
    key = Keys.of(limiter.name).all[2]
    while (left_s := until - time.monotonic()) > 0:
        prompt = f"{draw.random()} " + "x" * draw.randrange(400)
        message = {"role": "user", "content": prompt}
        most = draw.randrange(20, 80)
        body = json.dumps({"model": "gpt-4o", "messages": [message], "max_tokens": most}).encode()
        cost = len(body) // 4 + most
        try:
            lease = await limiter.acquire(tokens=cost, timeout_s=left_s)
        except AcquireTimeout:
            return
        headers = {"content-type": "application/json", "authorization": "Bearer one"}
        reply = await client.post("/v1/chat/completions", content=body, headers=headers)
        record = await limiter.owner().transport.client.hget(key, lease.id)
        calls.append(
            {"status": reply.status_code, "cost": cost, "granted_ms": int(record.split()[4])}
        )
        await lease.release()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
