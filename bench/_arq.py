"""No-op jobs a second of one arq worker: `_arq.py PORT JOBS`, in an environment with arq."""

from __future__ import annotations

import asyncio
import sys
import time

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

ended: list[float] = []


async def job(ctx: dict[str, object]) -> None:
    """Do nothing; note when."""
    ended.append(time.perf_counter())


async def main(port: int, jobs: int) -> None:
    """Enqueue, run in burst mode, print jobs a second from the first end to the last."""
    settings = RedisSettings(port=port)
    pool = await create_pool(settings)
    for _ in range(jobs):
        await pool.enqueue_job("job")
    worker = Worker([job], redis_settings=settings, burst=True, max_jobs=64, poll_delay=0.01)
    await worker.main()
    print((len(ended) - 1) / (ended[-1] - ended[0]))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
