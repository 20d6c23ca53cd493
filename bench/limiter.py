"""What the limiter costs, and what others cost and let through: `bench/limiter.py [--json]`.

Ratios are measured within one run: the compared calls take turns. Peers are measured where they are
installed: `pip install limits`, and `--ray PYTHON` names an interpreter that has Ray.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# This file has the package's name: its folder must not come first.
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent]

import redis  # noqa: E402

from limiter import Limiter, Limits  # noqa: E402
from worker.ops.embedded import EmbeddedServer, find_server  # noqa: E402

OPEN = {"max_concurrent": 10**6, "rpm": 10**8, "tpm": 10**9, "burst_s": 5}
Row = dict[str, Any]


def row(what: str, value: float, unit: str, goal: str = "") -> Row:
    return {"what": what, "value": round(value, 2), "unit": unit, "goal": goal}


class Bench:
    """One limiter on one server, driven by its sync face."""

    def __init__(self, url: str, calls: int) -> None:
        self.calls = calls
        self.limiter = Limiter(url, Limits(name="bench", **OPEN))
        self.owner = self.limiter.sync.owner()
        self.client = self.owner.client
        self.trivial_sha = self.client.script_load("return 1")
        self.number = 0

    def trivial(self) -> None:
        self.client.execute_command("EVALSHA", self.trivial_sha, 0)

    def new_id(self) -> str:
        self.number += 1
        return f"{self.number:032x}"

    def acquire(self, call_id: str, lease_ms: int = 60_000, wait_ms: int = -1) -> Any:
        times = (lease_ms, wait_ms, 12_000, 0)
        return self.owner.send("acquire", call_id, self.owner.id, 100, *times)

    def release(self, call_id: str, fence: int) -> None:
        self.owner.send("release", call_id, fence, 50, self.owner.id)

    def exchange(self, old: str, fence: int, call_id: str) -> int:
        call = (call_id, self.owner.id, 100, 60_000, -1, 12_000, 0)
        reply = self.owner.send("exchange", old, fence, 50, *call)
        return int(reply[1] if not isinstance(reply[1], list) else reply[1][1])

    def latency(self) -> list[Row]:
        """p50 at the client, the calls taking turns."""
        took: dict[str, list[float]] = {"trivial": [], "acquire": [], "exchange": [], "api": []}
        with self.limiter.sync.lease():
            pass
        for _ in range(self.calls):
            first, second = self.new_id(), self.new_id()
            timed(took["trivial"], self.trivial)
            fence = timed(took["acquire"], lambda: self.acquire(first))  # noqa: B023
            fence = timed(took["exchange"], lambda: self.exchange(first, fence, second))  # noqa: B023
            self.release(second, fence)
            lease = timed(took["api"], lambda: self.limiter.sync.acquire(tokens=100))
            lease.release()
        p50 = {name: statistics.median(values) * 1e6 for name, values in took.items()}
        base = p50["trivial"]
        return [
            row("EVALSHA of `return 1`, p50", base, "us"),
            row("free acquire, p50 / trivial", p50["acquire"] / base, "x", "<= 1.4"),
            row("release-and-acquire, p50 / trivial", p50["exchange"] / base, "x", "<= 1.6"),
            row("limiter.sync.acquire(), p50 / trivial", p50["api"] / base, "x"),
        ]

    def server_us(self, call: Callable[[], object], calls: int) -> float:
        self.client.config_resetstat()
        for _ in range(calls):
            call()
        return float(self.client.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])

    def grant_us(self) -> tuple[float, float]:
        """Server time of a grant and of a trivial script: the median of turns."""
        grants, trivials = [], []
        for _ in range(7):
            trivials.append(self.server_us(self.trivial, self.calls // 4))
            grants.append(self.server_us(lambda: self.acquire(self.new_id()), self.calls // 4))
        return statistics.median(grants), statistics.median(trivials)

    def growth(self, most: int) -> list[Row]:
        """Server time with ever more leases, then with ever more waiters."""
        rows, base = [], 0.0
        for leases in (10, 10_000, 100_000):
            if leases > most:
                break
            self.client.flushall()
            self.fill(leases, lambda pipe: self.queue_call(pipe, -1))
            grant, trivial = self.grant_us()
            if leases == 10:
                base = grant
                rows.append(row("server time of a grant", grant, "us"))
                rows.append(row("server time of a grant / trivial", grant / trivial, "x", "<= 11"))
            else:
                goal = "<= 1.3" if leases == 10_000 else "<= 2"
                rows.append(
                    row(f"a grant with {leases:,} leases / with 10", grant / base, "x", goal)
                )
        return rows + self.waiter_growth(most)

    def waiter_growth(self, most: int) -> list[Row]:
        rows, base = [], 0.0
        for waiters in (10, 10_000, 100_000):
            if waiters > most:
                break
            self.client.flushall()
            limiter = Limiter(
                self.limiter.url, Limits(name="bench", **OPEN | {"max_concurrent": 0})
            )
            limiter.sync.usage()
            limiter.sync.close()
            self.fill(waiters, lambda pipe: self.queue_call(pipe, -1))
            us = self.server_us(lambda: self.acquire(self.new_id()), self.calls // 4)
            if waiters == 10:
                base = us
            else:
                goal = "<= 1.3" if waiters == 10_000 else "<= 2"
                rows.append(
                    row(f"an acquire behind {waiters:,} waiters / 10", us / base, "x", goal)
                )
        return rows

    def fill(self, count: int, queue: Callable[[Any], None]) -> None:
        self.owner._declared = False
        self.owner.call("usage", deadline=None)
        self.acquire(self.new_id())
        for begin in range(0, count - 1, 1000):
            pipe = self.client.pipeline(transaction=False)
            for _ in range(min(1000, count - 1 - begin)):
                queue(pipe)
            pipe.execute()

    def queue_call(self, pipe: Any, wait_ms: int) -> None:
        from limiter import scripts

        keys = self.owner.keys.all
        call = (self.new_id(), self.owner.id, 100, 600_000, wait_ms, 600_000, 0)
        pipe.execute_command("EVALSHA", scripts.load("acquire").sha, len(keys), *keys, *call)


def timed(into: list[float], call: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    result = call()
    into.append(time.perf_counter() - began)
    return result


# --- commands a call costs among waiters ---

CROWD = """
import asyncio, sys
from limiter import Limiter, Limits  # noqa: E402
async def main(url, tasks, calls, exchange):
    limiter = Limiter(url, Limits(name="crowd", max_concurrent=8))
    async def run():
        lease = await limiter.acquire()
        for _ in range(calls - 1):
            await asyncio.sleep(0.005)
            if exchange:
                lease = await limiter.release_and_acquire(lease)
            else:
                await lease.release()
                lease = await limiter.acquire()
        await lease.release()
    await asyncio.gather(*(run() for _ in range(tasks)))
    owner = limiter.owner()
    print(owner.transport.outbox.trips + owner.mailbox.trips)
    await limiter.close()
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "x"))
"""


def crowd(url: str, processes: int, exchange: bool) -> float:
    """Commands an acquire and its release cost, 200 waiters on 8 places."""
    calls = 10
    with redis.Redis.from_url(url) as client:
        client.flushall()
    arguments = [url, str(200 // processes), str(calls), "x" if exchange else "-"]
    fleet = [
        subprocess.Popen([sys.executable, "-c", CROWD, *arguments], stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    trips = sum(int(process.communicate()[0]) for process in fleet)
    return trips / (200 * calls)


# --- the same work with others: calls of 50 ms, at most 8 at once and 20 a second, 100 at once ---

PLACES, RATE, WORK_S = 8, 20, 0.05
Enter = Callable[[], Any]


class Watch:
    """Counts what a peer lets through: the highest number inside, starts above the rate."""

    def __init__(self) -> None:
        self.inside = self.highest = self.over = self.trips = 0
        self.starts: list[float] = []

    async def work(self) -> None:
        self.inside += 1
        self.over += self.inside > PLACES
        self.highest = max(self.highest, self.inside)
        self.starts.append(time.monotonic())
        await asyncio.sleep(WORK_S)
        self.inside -= 1

    def too_many(self) -> int:
        """Starts that came when a second had seen twice the rate (a full bucket and its refill)."""
        starts = sorted(self.starts)
        return sum(
            sum(at - 1 < other <= at for other in starts[max(0, i - 200) : i + 1]) > 2 * RATE
            for i, at in enumerate(starts)
        )


async def with_rewardpool(url: str, watch: Watch) -> None:
    limits = Limits(name="peer", max_concurrent=PLACES, rpm=RATE * 60, tpm=10**8, burst_s=1)
    limiter = Limiter(url, limits)

    async def call() -> None:
        async with limiter.lease(tokens=10):
            await watch.work()

    await asyncio.gather(*(call() for _ in range(100)))
    watch.trips = limiter.owner().transport.outbox.trips + limiter.owner().mailbox.trips
    await limiter.close()


async def with_limits(url: str, watch: Watch) -> None:
    """Three hits, one a layer, asked again every 20 ms; the places are given back by a hit less."""
    from limits import RateLimitItemPerMinute, RateLimitItemPerSecond
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import MovingWindowRateLimiter

    storage = RedisStorage("async+" + url, implementation="redispy")
    strategy = MovingWindowRateLimiter(storage)
    layers = [
        (RateLimitItemPerSecond(RATE), "requests", 1),
        (RateLimitItemPerMinute(10**6), "tokens", 10),
        (RateLimitItemPerSecond(int(PLACES / WORK_S)), "places", 1),
    ]

    async def call() -> None:
        for item, name, cost in layers:
            while True:
                watch.trips += 1
                if await strategy.hit(item, name, cost=cost):
                    break
                await asyncio.sleep(0.02)
        await watch.work()

    await asyncio.gather(*(call() for _ in range(100)))


async def with_polling(url: str, watch: Watch) -> None:
    """INCR and DECR for places, a counter a second for requests, asked again every 20 ms."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)

    async def call() -> None:
        while True:
            watch.trips += 2
            if await client.incr("places") <= PLACES:
                second = int((await client.time())[0])
                watch.trips += 2
                if await client.incr(f"second:{second}") <= RATE:
                    break
            await client.decr("places")
            await asyncio.sleep(0.02)
        await watch.work()
        watch.trips += 1
        await client.decr("places")

    await asyncio.gather(*(call() for _ in range(100)))
    await client.aclose()


RAY = """
import asyncio, json, sys, threading, time
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote(concurrency_groups={"acquire": 1, "release": 10})
class Places:
    def __init__(self, count):
        self.free = threading.Semaphore(count)
    @ray.method(concurrency_group="acquire")
    def acquire(self):
        self.free.acquire()
    @ray.method(concurrency_group="release")
    def release(self):
        self.free.release()

async def main(places, work_s):
    actor = Places.remote(places)
    await actor.acquire.remote()
    await actor.release.remote()
    starts, inside, highest = [], 0, 0
    async def call():
        nonlocal inside, highest
        await actor.acquire.remote()
        inside += 1
        highest = max(highest, inside)
        starts.append(time.monotonic())
        await asyncio.sleep(work_s)
        inside -= 1
        await actor.release.remote()
    began = time.monotonic()
    await asyncio.gather(*(call() for _ in range(100)))
    print(json.dumps({"s": time.monotonic() - began, "starts": starts, "highest": highest}))
asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
"""


def peers(url: str, ray_python: str | None) -> list[Row]:
    found = []
    runs = {"rewardpool": with_rewardpool, "limits, 3 hits": with_limits, "polling": with_polling}
    for name, run in runs.items():
        with redis.Redis.from_url(url) as client:
            client.flushall()
        watch, began = Watch(), time.monotonic()
        try:
            asyncio.run(run(url, watch))
        except ImportError as error:
            found.append({"peer": name, "note": f"not installed: {error.name}"})
            continue
        found.append(peer_row(name, watch, time.monotonic() - began, str(watch.trips / 100)))
    if ray_python is None:
        found.append({"peer": "Ray actor semaphore", "note": "give --ray PYTHON to measure it"})
        return found
    command = [ray_python, "-c", textwrap.dedent(RAY), str(PLACES), str(WORK_S)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    told, watch = json.loads(lines[-1]), Watch()
    watch.starts, watch.highest = told["starts"], told["highest"]
    found.append(peer_row("Ray actor semaphore", watch, told["s"], "2 actor calls"))
    return found


def peer_row(name: str, watch: Watch, seconds: float, trips: str) -> Row:
    return {
        "peer": name,
        "seconds": round(seconds, 2),
        "commands_a_call": trips,
        "most_inside": watch.highest,
        "starts_over_places": watch.over,
        "starts_over_rate": watch.too_many(),
    }


def show(rows: list[Row], compared: list[Row]) -> None:
    for one in rows:
        print(f"{one['what']:<48} {one['value']:>10} {one['unit']:<4} {one['goal']}")
    print(f"\n100 calls of {WORK_S:g} s at once; at most {PLACES} inside and {RATE} a second")
    for one in compared:
        print("  " + "  ".join(f"{key}={value}" for key, value in one.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--most", type=int, default=100_000, help="leases and waiters at most")
    parser.add_argument("--ray", metavar="PYTHON", help="an interpreter that has Ray")
    options = parser.parse_args()
    with EmbeddedServer(binary=find_server(prefer_embedded=True)) as server:
        bench = Bench(server.url, options.calls)
        rows = bench.latency() + bench.growth(options.most)
        bench.limiter.sync.close()
        for processes, goal in ((1, "<= 2.1"), (4, "<= 2.5")):
            for exchange in (False, True):
                what = "release-and-acquire" if exchange else "acquire and release"
                value = crowd(server.url, processes, exchange)
                what = f"commands of {what}, 200 on 8, {processes} process(es)"
                rows.append(row(what, value, "", "" if exchange else goal))
        compared = peers(server.url, options.ray)
    if options.json:
        print(json.dumps({"figures": rows, "peers": compared}, indent=2))
    else:
        show(rows, compared)


if __name__ == "__main__":
    main()
