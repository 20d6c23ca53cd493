"""Several processes under one limit on a real clock, and processes that are killed.

Times are Redis' own: when each lease was granted and given back stands in its keys. So the figures
hold on a machine that is busy, too.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from limiter import Limiter
from limiter.keys import Keys

Make = Callable[..., Limiter]
WORKER = Path(__file__).parent / "limiter_worker.py"
PROCESSES, SECONDS, CALL_S = 4, 62.0, 0.5
FLEET: dict[str, dict[str, Any]] = {
    "paced": {"max_concurrent": 40, "rpm": 1200, "burst_s": 5},  # the bucket binds: 20 a second
    "places": {"max_concurrent": 8},  # the places bind: 16 a second
    "strict": {"rpm": 300, "strict": True, "burst_s": 5},
}


def start(specs: list[dict[str, Any]]) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(WORKER), json.dumps(specs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_four_processes_keep_every_promise_for_a_minute(redis_url: str, tmp_path: Path) -> None:
    fleet = [
        [
            {
                "url": redis_url,
                "limits": {"name": name, **limits},
                "file": str(tmp_path / f"{name}-{process}"),
                "tasks": 24,
                "call_s": CALL_S,
                "seconds": SECONDS,
            }
            for name, limits in FLEET.items()
        ]
        for process in range(PROCESSES)
    ]
    processes = [start(specs) for specs in fleet]
    released = follow_releases(redis_url, processes)
    assert [process.wait() for process in processes] == [0] * PROCESSES
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()

    calls = {name: read_calls(tmp_path, name) for name in FLEET}
    check_bucket(calls["paced"], rate=1200, capacity=100)
    check_bucket(calls["strict"], rate=276, capacity=25)
    check_strict(calls["strict"], 300)
    check_places(calls["places"], released["places"], 8)
    check_in_flight(calls["paced"], 40)
    for name in FLEET:
        check_order(tmp_path, name)


def follow_releases(
    url: str, processes: list[subprocess.Popen[bytes]]
) -> dict[str, dict[str, int]]:
    """Collect when each lease was given back: Redis remembers it for a minute."""
    released: dict[str, dict[str, int]] = {name: {} for name in FLEET}
    with redis.Redis.from_url(url) as client:
        while True:
            running = any(process.poll() is None for process in processes)
            for name, found in released.items():
                key = Keys.of(name).all[1]
                ended = client.zrangebyscore(key, 1e15, 2e15, withscores=True)
                found.update({call_id.decode(): int(score - 1e15) for call_id, score in ended})
            if not running:
                return released
            time.sleep(1)


def read_calls(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob(f"{name}-*") for line in file.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda call: call["granted_ms"])


def check_bucket(
    calls: list[dict[str, Any]], *, rate: int, capacity: int, at_least_s: float = 50
) -> None:
    """Every window within the bound, and what the formula allows is used."""
    units = 60_000
    lowest = 0  # of (grants before) x units - rate x time: the worst window begins there
    for count, call in enumerate(calls):
        at = rate * (call["granted_ms"] - calls[0]["granted_ms"])
        lowest = min(lowest, count * units - at)
        assert (count + 1) * units - at - lowest <= capacity * units
    passed_ms = calls[-1]["granted_ms"] - calls[0]["granted_ms"]
    allowed = capacity + rate * passed_ms / units
    assert len(calls) >= 0.98 * (allowed - 1), f"{len(calls)} of {allowed:.1f}"
    assert passed_ms > at_least_s * 1000


def check_strict(calls: list[dict[str, Any]], limit: int) -> None:
    times = [call["granted_ms"] for call in calls]
    first = 0
    for last, at in enumerate(times):
        while times[first] <= at - 60_000:
            first += 1
        assert last - first + 1 <= limit


def check_in_flight(calls: list[dict[str, Any]], most: int) -> None:
    """The true number of calls inside, by the processes' own common clock."""
    events = sorted(
        [(call["began"], 1) for call in calls] + [(call["ended"], -1) for call in calls],
    )
    inside = highest = 0
    for _, step in events:
        inside += step
        highest = max(highest, inside)
    assert highest <= most


def check_places(calls: list[dict[str, Any]], released: dict[str, int], most: int) -> None:
    """Never more than allowed, and while there are waiters no place is empty."""
    check_in_flight(calls, most)
    known = [call for call in calls if call["id"] in released]
    assert len(known) >= 0.98 * len(calls)
    begin = known[most]["granted_ms"]
    end = max(call["granted_ms"] for call in known)  # until then there were waiters
    held_ms = sum(
        max(0, min(end, released[call["id"]]) - max(begin, call["granted_ms"])) for call in known
    )
    assert held_ms >= 0.98 * most * (end - begin), f"{held_ms / (most * (end - begin)):.3f} used"
    assert end - begin > 50_000


def check_order(folder: Path, name: str) -> None:
    """In each process, who asked first is served first."""
    for file in folder.glob(f"{name}-*"):
        calls = sorted(map(json.loads, file.read_text().splitlines()), key=lambda c: c["number"])
        fences = [call["fence"] for call in calls]
        assert fences == sorted(fences), file.name


class Lag:
    """The longest this loop was late, so that a stalled machine is not taken for a late grant."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def measure(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            self.longest_ms = max(self.longest_ms, 1000 * (time.monotonic() - before) - 50)


@contextmanager
def holding(spec: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    process = start([{"mode": "hold", **spec}])
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def now_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def granted_ms(limiter: Limiter, lease_id: str) -> int:
    client = limiter.owner().transport.client
    return int((await client.hget(Keys.of(limiter.name).all[2], lease_id)).split()[4])


async def test_killed_holders_give_back_within_a_lease_and_a_second(
    make_limiter: Make, connection: redis.Redis
) -> None:
    """No traffic but the parked waiters; all five places come back."""
    limits = {"name": "killed", "max_concurrent": 5}
    limiter, lag = make_limiter(**limits), Lag()
    spec = {"url": limiter.url, "limits": limits, "leases": 5, "lease_s": 4}
    with holding(spec) as process:
        waiters = [asyncio.create_task(limiter.acquire()) for _ in range(5)]
        while (await limiter.usage()).waiting < 5:
            await asyncio.sleep(0.01)
        measuring = asyncio.create_task(lag.measure())
        process.kill()
        process.wait()
        killed = now_ms(connection)
        leases = await asyncio.gather(*waiters)
        measuring.cancel()
    times = [await granted_ms(limiter, lease.id) for lease in leases]
    usage = await limiter.usage()

    assert max(times) - killed <= 4_000 + 1_000 + lag.longest_ms
    assert (usage.reclaimed, usage.in_flight) == (5, 5)


async def test_dead_waiters_in_front_delay_by_thirteen_seconds_at_most(
    make_limiter: Make, connection: redis.Redis
) -> None:
    limits = {"name": "dead", "max_concurrent": 1}
    limiter, lag = make_limiter(**limits), Lag()
    holder = await limiter.acquire()
    spec = {"url": limiter.url, "limits": limits, "waiters": 3, "waiting": 3}
    with holding(spec) as process:
        waiter = asyncio.create_task(limiter.acquire())
        while (await limiter.usage()).waiting < 4:
            await asyncio.sleep(0.01)
        measuring = asyncio.create_task(lag.measure())
        process.kill()
        process.wait()
        killed = now_ms(connection)
        await holder.release()
        lease = await waiter
        measuring.cancel()

    assert await granted_ms(limiter, lease.id) - killed <= 13_000 + lag.longest_ms
    await lease.release()
    assert (await limiter.usage()).in_flight == 0


async def test_two_processes_in_the_same_millisecond_never_both_win(
    make_limiter: Make, tmp_path: Path
) -> None:
    limits = {"name": "one", "max_concurrent": 1}
    limiter = make_limiter(**limits)
    spec = {"url": limiter.url, "limits": limits, "tasks": 3, "call_s": 0.0, "seconds": 3}
    fleet = [start([spec | {"file": str(tmp_path / f"one-{i}")}]) for i in range(2)]
    for process in fleet:
        await asyncio.to_thread(process.wait)
        assert process.stdout is not None
        process.stdout.close()
    calls = read_calls(tmp_path, "one")

    assert len(calls) > 100
    check_in_flight(calls, 1)
    assert len({call["fence"] for call in calls}) == len(calls)
