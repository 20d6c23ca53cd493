"""Acquire, settle, release: what a caller sees."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from limiter import AcquireTimeout, CostExceedsCapacity, LeaseLost, Limiter, LimiterClosed

Make = Callable[..., Limiter]


async def test_a_refused_call_takes_nothing(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1, rpm=1000, tpm=1000)
    async with limiter.lease(tokens=1):
        before = await limiter.usage()
        with pytest.raises(AcquireTimeout):
            await limiter.acquire(tokens=1, timeout_s=0)
        after = await limiter.usage()

    assert after.in_flight == before.in_flight == 1
    assert after.tpm_level is not None
    assert before.tpm_level is not None
    assert after.tpm_level >= before.tpm_level


async def test_the_first_acquire_is_one_trip_after_the_declaration(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    await limiter.usage()
    outbox = limiter.owner().transport.outbox
    before = outbox.trips
    lease = await limiter.acquire(timeout_s=0)

    assert outbox.trips - before <= 2, "EVALSHA, and EVAL when the server does not know the text"
    await lease.release()


async def test_a_timeout_is_kept_and_names_the_layer(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    async with limiter.lease():
        started = time.monotonic()
        with pytest.raises(AcquireTimeout, match="concurrency"):
            await limiter.acquire(timeout_s=0.3)
        waited_s = time.monotonic() - started

        assert waited_s >= 0.3
        usage = await limiter.usage()
        assert (usage.waiting, usage.in_flight) == (0, 1)


async def test_a_refusal_says_when_to_come_back_and_never_zero(make_limiter: Make) -> None:
    limiter = make_limiter(rpm=1)
    await limiter.acquire(timeout_s=0)
    with pytest.raises(AcquireTimeout) as caught:
        await limiter.acquire(timeout_s=0)

    assert caught.value.retry_after_s is not None
    assert 0 < caught.value.retry_after_s <= 60


async def test_waiters_are_served_in_their_order(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=4)
    holders = [await limiter.acquire() for _ in range(4)]
    served: list[int] = []

    async def call(number: int) -> None:
        async with limiter.lease():
            served.append(number)

    tasks = [asyncio.create_task(call(number)) for number in range(200)]
    while (await limiter.usage()).waiting < 200:
        await asyncio.sleep(0.01)
    for holder in holders:
        await holder.release()
    await asyncio.gather(*tasks)

    assert served == list(range(200))


async def test_one_release_makes_one_grant(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    holder = await limiter.acquire()
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(200)]
    while (await limiter.usage()).waiting < 200:
        await asyncio.sleep(0.01)
    grants = (await limiter.usage()).grants
    await holder.release()
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    usage = await limiter.usage()
    assert (usage.grants - grants, usage.waiting, usage.in_flight) == (1, 199, 1)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_no_wait_does_not_barge(make_limiter: Make) -> None:
    limiter = make_limiter(tpm=60)
    await limiter.acquire(tokens=60)
    big = asyncio.create_task(limiter.acquire(tokens=60))
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    with pytest.raises(AcquireTimeout, match="queue"):
        await limiter.acquire(tokens=0, timeout_s=0)
    big.cancel()
    await asyncio.gather(big, return_exceptions=True)


async def test_a_head_start_is_a_place_nearer_to_the_front(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    holder = await limiter.acquire()
    served: list[str] = []

    async def call(name: str, head_start_s: float) -> None:
        async with limiter.lease(head_start_s=head_start_s):
            served.append(name)

    tasks = [asyncio.create_task(call(name, 0)) for name in "ab"]
    while (await limiter.usage()).waiting < 2:
        await asyncio.sleep(0.01)
    tasks.append(asyncio.create_task(call("urgent", 3600)))
    while (await limiter.usage()).waiting < 3:
        await asyncio.sleep(0.01)
    await holder.release()
    await asyncio.gather(*tasks)

    assert served == ["urgent", "a", "b"]


async def test_unused_tokens_come_back_at_the_release(make_limiter: Make) -> None:
    limiter = make_limiter(tpm=60_000, burst_s=60)
    async with limiter.lease(tokens=30_000):
        pass  # nothing settled: the reservation stands
    async with limiter.lease(tokens=20_000) as lease:
        await lease.settle(1_000)

    level = (await limiter.usage()).tpm_level
    assert level is not None
    assert 29_000 <= level < 40_000, "60,000 - 30,000 - 1,000 and what refilled"


async def test_without_refund_the_reservation_stands(make_limiter: Make) -> None:
    limiter = make_limiter(tpm=60_000, refund=False)
    async with limiter.lease(tokens=20_000) as lease:
        await lease.settle(1_000)

    level = (await limiter.usage()).tpm_level
    assert level is not None
    assert level < 55_000


async def test_overage_becomes_debt_while_the_lease_is_held(make_limiter: Make) -> None:
    limiter = make_limiter(tpm=600, burst_s=60)
    async with limiter.lease(tokens=100) as lease:
        await lease.settle(5_000)
        level = 0.0
        while level >= 0:
            level = (await limiter.usage()).tpm_level or 0.0
            await asyncio.sleep(0.01)
        assert level < -4_000


async def test_a_settle_as_the_last_act_travels_with_the_release(make_limiter: Make) -> None:
    limiter = make_limiter(tpm=60_000)
    async with limiter.lease(tokens=1):
        pass
    outbox = limiter.owner().transport.outbox
    before = outbox.trips
    async with limiter.lease(tokens=10) as lease:
        await lease.settle(100)
    assert outbox.trips - before == 2


async def test_impossible_costs_are_refused_at_once_with_the_numbers(make_limiter: Make) -> None:
    alone = make_limiter(tpm=6_000, burst_s=5)
    with pytest.raises(CostExceedsCapacity, match=r"8000 tokens .* at most 6000"):
        await alone.acquire(tokens=8_000)
    strict_size = make_limiter(tpm=6_000, burst_s=5, oversize="error")
    with pytest.raises(CostExceedsCapacity, match="at most 500"):
        await strict_size.acquire(tokens=501)
    lease = await alone.acquire(tokens=6_000, timeout_s=0)  # an idle bucket makes nobody wait
    await lease.release()


async def test_a_waiter_made_impossible_is_refused_and_blocks_nobody(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1, tpm=10_000)
    holder = await limiter.acquire(tokens=1)
    big = asyncio.create_task(limiter.acquire(tokens=9_000))
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    small = asyncio.create_task(limiter.acquire(tokens=10))
    while (await limiter.usage()).waiting < 2:
        await asyncio.sleep(0.01)
    await limiter.configure(tpm=5_000)
    await holder.release()

    with pytest.raises(CostExceedsCapacity):
        await big
    await (await small).release()


async def test_release_and_acquire_is_one_trip_and_does_not_barge(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    lease = await limiter.acquire()
    outbox = limiter.owner().transport.outbox
    before = outbox.trips
    lease = await limiter.release_and_acquire(lease, used=0)
    assert outbox.trips - before <= 2
    waiter = asyncio.create_task(limiter.acquire())
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    again = asyncio.create_task(limiter.release_and_acquire(lease))
    first = await waiter
    assert not again.done()
    await first.release()
    await (await again).release()


@pytest.mark.parametrize("layer", ["max_concurrent", "rpm", "tpm"])
async def test_zero_closes_the_gate_and_raising_it_serves_the_queue(
    make_limiter: Make, layer: str
) -> None:
    limiter = make_limiter(**{layer: 0})
    with pytest.raises(AcquireTimeout) as caught:
        await limiter.acquire(timeout_s=0)
    assert caught.value.retry_after_s is None
    waiter = asyncio.create_task(limiter.acquire())
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    await limiter.configure(**{layer: 10})
    await (await waiter).release()


async def test_unlimited_layers_admit_everything(make_limiter: Make) -> None:
    limiter = make_limiter()
    leases = [await limiter.acquire(tokens=10**9, timeout_s=0) for _ in range(50)]
    assert (await limiter.usage()).in_flight == 50
    for lease in leases:
        await lease.release()


async def test_a_lost_lease_says_so(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    lease = await limiter.acquire(lease_s=0.05, renew=False)
    taken = await limiter.acquire(timeout_s=10)
    with pytest.raises(LeaseLost):
        await lease.release()
    assert (await limiter.usage()).in_flight == 1, "the place of its next holder is untouched"
    await taken.release()
    with pytest.raises(LeaseLost):
        async with limiter.lease(lease_s=0.05, renew=False):
            await asyncio.sleep(0.2)


async def test_short_leases_are_renewed_in_time(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=5)
    owner = limiter.owner()
    assert owner.pace_s() == 3
    long = await limiter.acquire(lease_s=60)
    short = await limiter.acquire(lease_s=1.5)
    assert owner.pace_s() == 0.5, "three beats in the shortest lease"
    await asyncio.gather(short.release(), long.release())
    assert owner.pace_s() == 3


async def test_a_body_that_raises_gives_its_place_back(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1)
    with pytest.raises(ZeroDivisionError):
        async with limiter.lease():
            raise ZeroDivisionError
    assert (await limiter.usage()).in_flight == 0


async def test_closing_ends_waiters_and_frees_places(make_limiter: Make) -> None:
    limiter = make_limiter(max_concurrent=1, name="shared")
    other = make_limiter(max_concurrent=1, name="shared")
    await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    while (await other.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    await limiter.close()
    with pytest.raises(LimiterClosed):
        await waiter
    await (await other.acquire(timeout_s=20)).release()
    with pytest.raises(LimiterClosed):
        await limiter.acquire()


async def test_tiny_limits_admit_one_and_then_their_pace(make_limiter: Make) -> None:
    for rpm in (1, 3, 10):
        limiter = make_limiter(rpm=rpm, burst_s=0.1)
        await (await limiter.acquire(timeout_s=0)).release()
        with pytest.raises(AcquireTimeout) as caught:
            await limiter.acquire(timeout_s=0)
        assert caught.value.retry_after_s is not None
        assert 60 / rpm - 10 < caught.value.retry_after_s <= 60 / rpm


async def test_huge_limits_stay_whole(make_limiter: Make) -> None:
    limiter = make_limiter(tpm=10**12, burst_s=9)
    async with limiter.lease(tokens=10**11) as lease:
        await lease.settle(2**53 - 2)
    level = (await limiter.usage()).tpm_level
    assert level is not None
    assert level < 0
    assert lease.fence > 10**15


@pytest.mark.parametrize("name", ["a b", "{x}", "ключ", "a%20b", "x" * 200, "}{", "*?[a]"])
async def test_odd_names_work_in_full(make_limiter: Make, name: str) -> None:
    from limiter import overview

    limiter = make_limiter(max_concurrent=1, name=name)
    holder = await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    while (await limiter.usage()).waiting < 1:
        await asyncio.sleep(0.01)
    await holder.release()
    await (await waiter).release()
    assert [usage.name for usage in overview(limiter.url)] == [name]
