"""What a pool costs its Redis: the figures from which a larger pool is worked out.

Run `python bench/scaling.py [--json] [--rows N] [--idle-s S]`. On an embedded server it measures
idle workers (commands, CPU, connections), queued rows (memory), scored rows of 1 kB text in jobs of
32 (CPU, commands, bytes both ways), and granted leases (CPU). The last lines work out from these
what one core of Redis carries; they are calculated, not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

from limiter import Limiter, Limits
from queue_client import Output, RewardClient, Trajectory
from worker.ops.embedded import EmbeddedServer
from worker.ops.local_pool import LocalPool

REWARD = """
async def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0
"""
TEXT = "word " * 200
WORKERS = 4


class Meter:
    """Redis' own counters between two moments."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._before = self._read()

    def _read(self) -> dict[str, float]:
        info: dict[str, Any] = self._client.info()
        return {
            "cpu_s": info["used_cpu_user"] + info["used_cpu_sys"],
            "commands": info["total_commands_processed"],
            "in": info["total_net_input_bytes"],
            "out": info["total_net_output_bytes"],
            "memory": info["used_memory"],
            "clients": info["connected_clients"],
            "at": time.monotonic(),
        }

    def spent(self) -> dict[str, float]:
        """Return what was spent since the start, the meter itself left out as far as it shows."""
        after = self._read()
        return {name: after[name] - self._before[name] for name in after}


def trajectories(count: int) -> list[Trajectory]:
    """Rows of 1 kB text."""
    return [Trajectory(outputs=[Output(text=TEXT)], data_source="bench") for _ in range(count)]


def measure(url: str, *, rows: int, idle_s: float, leases: int) -> dict[str, float]:
    """Return all measured figures."""
    client = redis.Redis.from_url(url)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reward.py"
        file.write_text(REWARD)
        settings = {"reward": {"function": f"{file}:compute_score"}}
        found = _queued(url, client, rows)
        client.flushall()
        alone = Meter(client)
        time.sleep(idle_s / 2)
        empty = alone.spent()
        own_cpu = empty["cpu_s"] / empty["at"]  # what the server spends on itself
        with LocalPool(workers=WORKERS, redis_url=url, settings=settings):
            time.sleep(3)
            connections = alone.spent()["clients"]
            idle = Meter(client)
            time.sleep(idle_s)
            spent = idle.spent()
            found |= {
                "idle_commands_per_worker_s": spent["commands"] / WORKERS / spent["at"],
                "idle_cpu_us_per_worker_s": 1e6
                * (spent["cpu_s"] / spent["at"] - own_cpu)
                / WORKERS,
                "connections_per_worker": connections / WORKERS,
            }
            found |= _scored(url, client, rows)
    return found | asyncio.run(_granted(url, client, leases))


def _queued(url: str, client: redis.Redis, rows: int) -> dict[str, float]:
    meter = Meter(client)
    with RewardClient(url, max_in_flight=rows) as producer:
        producer.submit(trajectories(rows))
        while _queued_jobs(client) * 32 < rows:
            time.sleep(0.05)
        return {"memory_bytes_per_queued_row": meter.spent()["memory"] / rows}


def _queued_jobs(client: redis.Redis) -> int:
    return int(client.llen("rq:queue:rewards"))


def _scored(url: str, client: redis.Redis, rows: int) -> dict[str, float]:
    with RewardClient(url) as producer:
        producer.score(trajectories(512), timeout_s=60)  # everything is loaded now
        meter = Meter(client)
        outcomes = producer.score(trajectories(rows), timeout_s=300)
        spent = meter.spent()
    assert all(one.ok for one in outcomes)
    return {
        "rows_per_s": rows / spent["at"],
        "redis_cpu_us_per_row": 1e6 * spent["cpu_s"] / rows,
        "commands_per_row": spent["commands"] / rows,
        "bytes_in_per_row": spent["in"] / rows,
        "bytes_out_per_row": spent["out"] / rows,
    }


async def _granted(url: str, client: redis.Redis, leases: int) -> dict[str, float]:
    limiter = Limiter(url, Limits(name="bench", max_concurrent=10**6, rpm=10**9, tpm=10**11))
    for _ in range(50):
        async with limiter.lease(tokens=10):
            pass
    meter = Meter(client)

    async def call() -> None:
        for _ in range(leases // 20):
            async with limiter.lease(tokens=10):
                pass

    await asyncio.gather(*(call() for _ in range(20)))
    spent = meter.spent()
    await limiter.close()
    return {
        "redis_cpu_us_per_lease": 1e6 * spent["cpu_s"] / leases,
        "leases_per_s_one_process": leases / spent["at"],
    }


def worked_out(found: dict[str, float]) -> dict[str, float]:
    """What follows for one core of Redis, used to 50 %."""
    half_core_us = 500_000
    idle_us = found["idle_cpu_us_per_worker_s"]
    return {
        "cpu_share_of_1000_idle_workers": 1000 * idle_us / 1e6,
        "connections_of_1000_workers": 1000 * found["connections_per_worker"],
        "rows_per_s_at_half_a_core": half_core_us / found["redis_cpu_us_per_row"],
        "leased_rows_per_s_at_half_a_core": half_core_us
        / (found["redis_cpu_us_per_row"] + found["redis_cpu_us_per_lease"]),
        "queued_rows_per_GB": 1e9 / found["memory_bytes_per_queued_row"],
    }


def main() -> None:
    """Measure, work out, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--leases", type=int, default=4_000)
    parser.add_argument("--idle-s", type=float, default=15.0)
    options = parser.parse_args()
    with EmbeddedServer() as server:
        found = measure(server.url, rows=options.rows, idle_s=options.idle_s, leases=options.leases)
    calculated = worked_out(found)
    if options.json:
        json.dump({"measured": found, "calculated": calculated}, sys.stdout, indent=2)
        return
    for title, figures in (("measured", found), ("calculated", calculated)):
        print(title)
        for name, value in figures.items():
            print(f"  {name:36} {value:14,.2f}")


if __name__ == "__main__":
    main()
