"""A worker process of a test: calls a sandbox under the cluster's limit until it is told to stop.

`python sandbox_caller.py URL REDIS_URL PROGRAMS`: runs that many programs, several at once.
"""

from __future__ import annotations

import asyncio
import sys

from limiter import Limiter, Limits
from worker.sandbox.async_client import AsyncSandboxFusion
from worker.sandbox.calls import RetryPolicy
from worker.sandbox.program import Program

AT_ONCE = 6


async def main(url: str, redis_url: str, programs: int) -> None:
    limit = Limiter(redis_url, Limits(name="sandbox", max_concurrent=5))
    gate = asyncio.Semaphore(AT_ONCE)
    retry = RetryPolicy(attempts=3, first_delay_s=0.05)

    async with AsyncSandboxFusion(url, limit=limit, retry=retry, slack_s=1.0) as client:

        async def one(number: int) -> None:
            async with gate:
                program = Program(str(number), compile_timeout_s=0.5, run_timeout_s=0.5)
                await client.run(program)

        await asyncio.gather(*map(one, range(programs)))
    await limit.close()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
