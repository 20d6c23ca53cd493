"""What a failing Redis, network or caller can do, and what must hold."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest
import redis
from limiter_proxy import DroppingProxy

from limiter import AcquireTimeout, Limiter, LimiterUnavailable, Limits
from worker.ops.embedded import EmbeddedServer

Make = Callable[..., Limiter]
Start = Callable[..., EmbeddedServer]


async def until_quiet(limiter: Limiter, *, in_flight: int = 0) -> None:
    """Wait until what was abandoned is given back; the test's own timeout is the deadline."""
    while True:
        usage = await limiter.usage()
        if (usage.in_flight, usage.waiting) == (in_flight, 0):
            return
        await asyncio.sleep(0.02)


async def test_a_thousand_cancelled_acquires_leave_nothing(make_limiter: Make) -> None:
    """As if they had never been: places, queue, requests and tokens."""
    draw = random.Random(7)
    limiter = make_limiter(max_concurrent=3, rpm=60, tpm=900, burst_s=6000)
    control = make_limiter(max_concurrent=3, name=limiter.name, rpm=60, tpm=900, burst_s=6000)
    for _ in range(30):  # away from full, so that the levels tell
        await (await limiter.acquire(tokens=900)).release()
    before = await control.usage()
    for _ in range(100):
        calls = [asyncio.create_task(limiter.acquire(tokens=100)) for _ in range(10)]
        for call in calls:
            for _ in range(draw.randrange(8)):
                await asyncio.sleep(0)
            if draw.random() < 0.3:
                await asyncio.sleep(draw.random() * 0.003)
            call.cancel()
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if not isinstance(result, BaseException):  # granted before the cancel came
                await limiter.owner().transport.call("cancel", result.id, "-", 0, deadline=None)
                limiter.owner().leases.pop(result.id)
    await until_quiet(control)
    after = await control.usage()

    assert before.tpm_level is not None
    assert before.rpm_level is not None
    passed_ms = after.now_ms - before.now_ms
    tokens = min(90_000, before.tpm_level + 900 * passed_ms / 60_000)
    requests = min(6_000, before.rpm_level + 60 * passed_ms / 60_000)
    assert after.tpm_level == pytest.approx(tokens, abs=1e-3)
    assert after.rpm_level == pytest.approx(requests, abs=1e-3)


async def test_a_cancel_that_overtakes_its_acquire_wins(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    transport = limiter.owner().transport
    await transport.call("cancel", "early", "me", 0, deadline=None)
    reply = await transport.call("acquire", "early", "me", 5, 1000, -1, 12000, 0, deadline=None)

    assert int(reply[0]) == -1, "the id has ended"
    assert (await limiter.usage()).in_flight == 0


async def test_dropped_replies_charge_once(server: EmbeddedServer, redis_url: str) -> None:
    """Behind a proxy that drops the reply of every third script, each call is charged once."""
    async with DroppingProxy(server.port, 3) as proxy:
        limiter = Limiter(proxy.url, Limits(name="dropped", max_concurrent=50, tpm=60_000))
        direct = Limiter(redis_url, Limits(name="dropped", max_concurrent=50, tpm=60_000))
        fences = []
        for _ in range(40):
            lease = await limiter.acquire(tokens=1_000)
            fences.append(lease.fence)
        usage = await direct.usage()

        assert proxy.dropped > 10
        assert usage.grants == usage.in_flight == 40
        assert fences == sorted(set(fences))
        assert usage.tpm_level is not None
        assert usage.tpm_level >= 20_000, "charged 40 x 1,000 of 60,000, once"
        assert usage.tpm_level <= 20_000 + (usage.now_ms - usage.since_ms)
        await limiter.close()
        await until_quiet(direct)
        await direct.close()


async def test_dropped_replies_charge_once_in_the_sync_face(
    server: EmbeddedServer, redis_url: str
) -> None:
    async with DroppingProxy(server.port, 3) as proxy:
        limiter = Limiter(proxy.url, Limits(name="dropped", max_concurrent=5))
        direct = Limiter(redis_url, Limits(name="dropped", max_concurrent=5))

        def call_often() -> None:
            for _ in range(20):
                with limiter.sync.lease(tokens=1):
                    pass

        await asyncio.to_thread(call_often)
        usage = await direct.usage()
        assert proxy.dropped > 10
        assert (usage.grants, usage.in_flight) == (20, 0)
        await limiter.close()
        await direct.close()


async def test_scripts_forgotten_between_every_two_calls(
    make_limiter: Make, connection: redis.Redis
) -> None:
    limiter = make_limiter(max_concurrent=1, tpm=1000)
    steps = 0

    async def flush_always() -> None:
        nonlocal steps
        while True:
            await asyncio.to_thread(connection.script_flush)
            steps += 1
            await asyncio.sleep(0)

    flusher = asyncio.create_task(flush_always())
    for _ in range(20):
        async with limiter.lease(tokens=1) as lease:
            waiter = asyncio.create_task(limiter.acquire(timeout_s=0.05))
            await lease.settle(2)
            with pytest.raises(AcquireTimeout):
                await waiter
        await limiter.throttle(retry_after_s=0)
    flusher.cancel()
    await asyncio.gather(flusher, return_exceptions=True)
    assert steps > 20
    await until_quiet(limiter)


async def test_a_lost_mailbox_costs_a_beat_and_no_more(
    make_limiter: Make, connection: redis.Redis
) -> None:
    """The blocked reader is killed just before the release; another process releases."""
    limiter = make_limiter(max_concurrent=1, name="mail")
    other = make_limiter(max_concurrent=1, name="mail")
    holder = await other.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    while (await other.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    owner = limiter.owner()
    owner.mailbox._client.connection_pool.max_connections = 0
    for client in connection.client_list():
        if client["cmd"].startswith(("blpop", "blmpop")):
            connection.client_kill_filter(_id=client["id"])
    await holder.release()
    started = time.monotonic()
    lease = await waiter

    assert time.monotonic() - started < 30, "within a beat, on a machine that is very busy"
    await lease.release()


async def test_a_waiter_survives_the_loss_of_all_data(
    make_limiter: Make, connection: redis.Redis
) -> None:
    limiter = make_limiter(max_concurrent=1)
    holder = await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(connection.flushall)
    while (await limiter.usage()).waiting < 1:  # the next beat asks again
        await asyncio.sleep(0.02)

    assert (await limiter.usage()).in_flight == 1, "the holder's beat has made the count true"
    assert not waiter.done()
    await holder.release()
    await (await waiter).release()


async def test_a_restart_reaches_no_caller(own_server: Start) -> None:
    first = own_server().start()
    limiter = Limiter(first.url, Limits(name="restarted", max_concurrent=2, rpm=100_000))
    done = 0

    async def call_often() -> None:
        nonlocal done
        while done < 400:
            async with limiter.lease(timeout_s=60):
                done += 1
                await asyncio.sleep(0.002)

    callers = [asyncio.create_task(call_often()) for _ in range(6)]
    while done < 50:
        await asyncio.sleep(0.01)
    again = own_server(first.binary)
    first.stop()
    again.port = first.port
    restart_on_port(again, first.port)
    try:
        await asyncio.gather(*callers)
        await until_quiet(limiter)
        await limiter.close()
    finally:
        again.stop()


def restart_on_port(server: EmbeddedServer, port: int) -> None:
    """Start a server, empty, where another one was."""
    import worker.ops.embedded as embedded

    kept = embedded._free_port
    embedded._free_port = lambda: port
    try:
        server.start()
    finally:
        embedded._free_port = kept


async def test_an_unreachable_redis_lets_nobody_through() -> None:
    limiter = Limiter("redis://127.0.0.1:1/0", Limits(name="gone", max_concurrent=5))
    started = time.monotonic()
    with pytest.raises(LimiterUnavailable):
        await limiter.acquire(timeout_s=0.5)
    assert time.monotonic() - started >= 0.4, "it tries until the caller's deadline"
    with pytest.raises(LimiterUnavailable):
        await limiter.acquire(timeout_s=0)
    with pytest.raises(LimiterUnavailable):
        limiter.sync.acquire(timeout_s=0.1)
    await limiter.close()


async def test_a_redis_without_memory_refuses_clearly(own_server: Start) -> None:
    with own_server() as server, redis.Redis.from_url(server.url) as client:
        limiter = Limiter(server.url, Limits(name="full", max_concurrent=5))
        held = await limiter.acquire()
        client.config_set("maxmemory", 1)
        with pytest.raises(LimiterUnavailable, match="OutOfMemory"):
            await limiter.acquire(timeout_s=0.3)
        client.config_set("maxmemory", 0)
        await until_quiet(limiter, in_flight=1)
        lease = await limiter.acquire(timeout_s=10)
        await lease.release()
        await held.release()
        await limiter.close()


async def test_a_paused_redis_delays_and_breaks_nothing(
    make_limiter: Make, connection: redis.Redis
) -> None:
    limiter = make_limiter(max_concurrent=2)
    await (await limiter.acquire()).release()
    await asyncio.to_thread(connection.execute_command, "CLIENT", "PAUSE", 700, "ALL")
    started = time.monotonic()
    try:
        await (await limiter.acquire(timeout_s=0.01)).release()
    except LimiterUnavailable:
        assert time.monotonic() - started < 30
    await (await limiter.acquire(timeout_s=60)).release()
    await until_quiet(limiter)


async def test_a_pause_holds_for_every_process_and_ends(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=50, name="paused")
    lease = await limiter.acquire()
    left_s = await limiter.throttle(retry_after_s=100, fence=lease.fence)
    assert 99 < left_s <= 100
    fresh = make_limiter(max_concurrent=50, name="paused")
    with pytest.raises(AcquireTimeout, match="pause") as caught:
        await fresh.acquire(timeout_s=0)
    assert caught.value.retry_after_s is not None
    assert 50 < caught.value.retry_after_s <= 100
    waiter = asyncio.create_task(fresh.acquire())
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    assert await limiter.resume() > 0
    await (await waiter).release()
    assert await limiter.throttle(retry_after_s=5, fence=lease.fence) == 0, "an old story"
    await lease.release()


async def test_fifty_reports_of_one_429_are_one_pause(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=50)
    leases = [await limiter.acquire() for _ in range(50)]
    await asyncio.gather(
        *(limiter.throttle(retry_after_s="2", fence=lease.fence) for lease in leases)
    )
    usage = await limiter.usage()
    assert usage.throttles == 1
    assert usage.pause_s <= 2
    await limiter.resume()
    for lease in leases:
        await lease.release()
