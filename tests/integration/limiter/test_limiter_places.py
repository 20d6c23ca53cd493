"""Where a limiter may be used: several loops, threads, forks; several servers; a cluster."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from limiter import AcquireTimeout, Limiter, Limits, overview, overview_async
from limiter.keys import Keys
from worker.ops.embedded import EmbeddedServer

Make = Callable[..., Limiter]
Start = Callable[..., EmbeddedServer]


def test_one_object_serves_one_loop_after_another(redis_url: str) -> None:
    """Nothing is attached to a loop that has gone, and no connection is left open."""
    limiter = Limiter(redis_url, Limits(name="loops", max_concurrent=1))

    async def call() -> int:
        async with limiter.lease() as lease:
            waiter = asyncio.create_task(limiter.acquire(timeout_s=0.02))
            with pytest.raises(AcquireTimeout):
                await waiter
            return lease.fence

    fences = [asyncio.run(call()) for _ in range(3)]
    gc.collect()
    assert fences == sorted(set(fences))
    limiter.sync.close()


def test_loops_in_several_threads_share_one_object(redis_url: str) -> None:
    limiter = Limiter(redis_url, Limits(name="threads", max_concurrent=2))
    inside, highest = 0, 0
    lock = threading.Lock()

    async def calls() -> None:
        nonlocal inside, highest
        for _ in range(10):
            async with limiter.lease(timeout_s=60):
                with lock:
                    inside += 1
                    highest = max(highest, inside)
                await asyncio.sleep(0.002)
                with lock:
                    inside -= 1

    async def many() -> None:
        await asyncio.gather(*(calls() for _ in range(4)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    usage = limiter.sync.usage()
    limiter.sync.close()

    assert highest <= 2
    assert (usage.grants, usage.in_flight, usage.waiting) == (120, 0, 0)


def test_the_sync_face_waits_in_the_same_line(redis_url: str) -> None:
    limiter = Limiter(redis_url, Limits(name="sync", max_concurrent=2, tpm=100_000))
    inside, highest = 0, 0
    lock = threading.Lock()

    def calls() -> None:
        nonlocal inside, highest
        for _ in range(10):
            with limiter.sync.lease(tokens=10, timeout_s=60) as lease:
                with lock:
                    inside += 1
                    highest = max(highest, inside)
                lease.settle(12)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=calls) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    usage = limiter.sync.usage()
    limiter.sync.close()

    assert highest <= 2
    assert (usage.grants, usage.in_flight, usage.waiting) == (80, 0, 0)


def test_the_sync_face_times_out_and_leaves_nothing(redis_url: str) -> None:
    limiter = Limiter(redis_url, Limits(name="sync", max_concurrent=1))
    with limiter.sync.lease():
        with pytest.raises(AcquireTimeout):
            limiter.sync.acquire(timeout_s=0)
        with pytest.raises(AcquireTimeout):
            limiter.sync.acquire(timeout_s=0.2)
        assert limiter.sync.usage().waiting == 0
    assert limiter.sync.usage().in_flight == 0
    limiter.sync.close()


FORKS = """
import os, sys
from limiter import Limiter, Limits
limiter = Limiter(sys.argv[1], Limits(name="forked", max_concurrent=2))
mine = limiter.sync.acquire()
child = os.fork()
if child == 0:
    lease = limiter.sync.acquire(timeout_s=30)
    print(limiter.sync.owner().id, limiter.sync.usage().in_flight, flush=True)
    lease.release()
    os._exit(0)
os.waitpid(child, 0)
print(limiter.sync.owner().id, limiter.sync.usage().in_flight, flush=True)
mine.release()
limiter.sync.close()
"""


def test_a_fork_gets_an_owner_of_its_own(redis_url: str) -> None:
    run = [sys.executable, "-W", "error", "-c", FORKS, redis_url]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    (child, inside), (parent, after) = (line.split() for line in output.splitlines())

    assert child != parent
    assert (inside, after) == ("2", "1")
    assert overview(redis_url)[0].in_flight == 0


async def test_limits_change_live_and_survive_restarts(redis_url: str) -> None:
    declared = Limits(name="live", rpm=60)
    first = Limiter(redis_url, declared)
    await (await first.acquire()).release()
    await first.configure(rpm=1000, by="ann")
    await first.close()

    again = Limiter(redis_url, declared)  # a restart with the same settings
    usage = await again.usage()
    assert (usage.limits.rpm, usage.source, usage.changed_by) == (1000, "operator", "ann")
    await again.close()

    changed = Limiter(redis_url, Limits(name="live", rpm=120))  # other settings are declared
    usage = await changed.usage()
    assert (usage.limits.rpm, usage.source) == (120, "declared")
    await changed.configure(max_concurrent=5)
    assert (await changed.reset()).max_concurrent is None
    await changed.close()


async def test_constructing_many_limiters_changes_nothing(redis_url: str) -> None:
    limits = Limits(name="many", max_concurrent=2)
    first = Limiter(redis_url, limits)
    held = [await first.acquire() for _ in range(2)]
    for _ in range(50):
        other = Limiter(redis_url, limits)
        with pytest.raises(AcquireTimeout):
            await other.acquire(timeout_s=0)
        await other.close()
    usage = await first.usage()
    assert (usage.in_flight, usage.revision) == (2, 1)
    for lease in held:
        await lease.release()
    await first.close()


async def test_the_overview_lists_every_limit(redis_url: str, make_limiter: Make) -> None:
    for name in ("b", "a", "c d"):
        limiter = make_limiter(name=name, rpm=60)
        await (await limiter.acquire()).release()
    assert [usage.name for usage in overview(redis_url)] == ["a", "b", "c d"]
    assert [usage.name for usage in await overview_async(redis_url)] == ["a", "b", "c d"]
    minutes = await limiter.history()
    assert sum(minute.grants for minute in minutes) == 1


async def exercise(url: str, name: str) -> None:
    """A little of everything, on whatever server that is."""
    limits = Limits(name=name, max_concurrent=2, rpm=6000, tpm=100_000)
    limiter = Limiter(url, limits)
    leases = [await limiter.acquire(tokens=10) for _ in range(2)]
    waiter = asyncio.create_task(limiter.acquire(tokens=5))
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    exchange = asyncio.create_task(limiter.release_and_acquire(leases[0], used=3))
    lease = await waiter
    await lease.settle(50)
    await lease.release()
    again = await exchange
    await limiter.throttle(retry_after_s=0.01, fence=lease.fence)
    await limiter.configure(rpm=7000)
    for one in (again, leases[1]):
        await one.release()
    usage = await limiter.usage()
    assert (usage.grants, usage.in_flight, usage.waiting) == (4, 0, 0)
    await limiter.close()


async def test_it_works_on_redis(own_server: Start, redis_server: Path) -> None:
    with own_server(redis_server) as server:
        await exercise(server.url, "on redis")


async def test_it_works_without_blmpop(make_limiter: Make) -> None:
    """As on Redis 6.2, where mail is read a letter at a time."""
    limiter = make_limiter(max_concurrent=1, name="old")
    other = make_limiter(max_concurrent=1, name="old")
    limiter.owner().mailbox._many = False
    for _ in range(5):
        holder = await other.acquire()
        waiter = asyncio.create_task(limiter.acquire())
        while (await other.usage()).waiting < 1:
            await asyncio.sleep(0.01)
        await holder.release()
        await (await waiter).release()


async def test_every_key_is_in_one_slot_of_a_cluster(own_server: Start) -> None:
    """A one-node cluster refuses scripts whose keys are in several slots."""
    with (
        own_server(None, "--cluster-enabled", "yes") as server,
        redis.Redis.from_url(server.url) as client,
    ):
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while b"cluster_state:ok" not in _bytes(client.execute_command("CLUSTER INFO")):
            await asyncio.sleep(0.05)
        for name in ("judge", "{odd} näme", "}{"):
            await exercise(server.url, name)
            keys = [*Keys.of(name).all, Keys.of(name).mail("owner")]
            slots = {client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys}
            assert len(slots) == 1


def _bytes(info: object) -> bytes:
    if isinstance(info, dict):
        return "\n".join(f"{key}:{value}" for key, value in info.items()).encode()
    return info if isinstance(info, bytes) else str(info).encode()


async def test_an_idle_limit_leaves_its_settings_and_no_more(
    make_limiter: Make, connection: redis.Redis
) -> None:
    limiter = make_limiter(max_concurrent=1, rpm=60, tpm=1000, name="idle")
    async with limiter.lease(tokens=10):
        pass
    left = {key.decode(): connection.pttl(key) for key in connection.keys("rewardpool:limit:*")}
    settings = Keys.of("idle").settings
    assert left.pop(settings) == -1
    assert all(0 < ms <= 3_660_000 for ms in left.values()), left
    for key in left:
        connection.delete(key)  # an hour later
    assert (await limiter.usage()).rpm_level == 60, "a missing state reads as full"
    await (await limiter.acquire(timeout_s=0)).release()


async def test_short_lived_clients_leave_nothing_behind(
    make_limiter: Make, connection: redis.Redis
) -> None:
    """Memory grows with what is in flight and the ids of a minute, not with who came by."""
    limiter = make_limiter(max_concurrent=10)
    transport = limiter.owner().transport
    for client in range(700):
        call = (f"id-{client}", f"owner-{client}", 1, 1000, 0, 12_000, 0)
        fence = await transport.call("acquire", *call, deadline=None)
        await transport.call("release", call[0], fence, -1, call[1], deadline=None)
    _, leases, calls, queue, owners, _, _ = limiter.owner().transport.keys.all
    assert connection.zcard(leases) <= 701
    assert connection.hlen(calls) <= 1
    assert connection.zcard(queue) <= 1
    assert connection.zcard(owners) <= 1
