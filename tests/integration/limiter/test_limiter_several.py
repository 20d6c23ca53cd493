"""Several limits for one call: all or none, and never two calls that wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from limiter import AcquireTimeout, BadLimits, CostExceedsCapacity, Limiter, Limits, lease_all


@pytest.fixture
async def pair(redis_url: str) -> AsyncIterator[tuple[Limiter, Limiter]]:
    judge = Limiter(redis_url, Limits(name="judge", max_concurrent=2, rpm=600, tpm=6000))
    sandbox = Limiter(redis_url, Limits(name="sandbox", max_concurrent=1))
    yield judge, sandbox
    await judge.close()
    await sandbox.close()


async def standing(limiter: Limiter) -> tuple[int, int]:
    usage = await limiter.usage()
    return usage.in_flight, usage.waiting


async def test_a_block_holds_a_lease_of_each_and_gives_all_back(
    pair: tuple[Limiter, Limiter],
) -> None:
    judge, sandbox = pair
    async with lease_all(sandbox, judge, tokens={"judge": 900}) as leases:
        assert list(leases) == ["judge", "sandbox"]
        assert (await standing(judge), await standing(sandbox)) == ((1, 0), (1, 0))
        await leases["judge"].settle(100)

    assert (await standing(judge), await standing(sandbox)) == ((0, 0), (0, 0))


async def test_a_limit_that_refuses_leaves_the_others_as_they_were(
    pair: tuple[Limiter, Limiter],
) -> None:
    judge, sandbox = pair
    async with sandbox.lease():
        with pytest.raises(AcquireTimeout):
            async with lease_all(judge, sandbox, tokens={"judge": 900}, timeout_s=0.2):
                pytest.fail("the sandbox is full")

        usage = await judge.usage()
        assert usage.in_flight == 0
        # As if it had never been: a request and its tokens are back, not only the place.
        assert usage.rpm_level == usage.rpm_capacity
        assert usage.tpm_level == usage.tpm_capacity


async def test_an_impossible_cost_takes_nothing(
    redis_url: str, pair: tuple[Limiter, Limiter]
) -> None:
    judge, _ = pair
    tight = Limiter(redis_url, Limits(name="tight", tpm=60, oversize="error"))
    with pytest.raises(CostExceedsCapacity):
        async with lease_all(judge, tight, tokens=1000):
            pytest.fail("60 tokens a minute cannot hold 1,000")
    assert await standing(judge) == (0, 0)
    await tight.close()


async def test_calls_that_name_them_in_either_order_all_end(pair: tuple[Limiter, Limiter]) -> None:
    judge, sandbox = pair
    inside = 0

    async def call(number: int) -> None:
        nonlocal inside
        order = (judge, sandbox) if number % 2 else (sandbox, judge)
        async with lease_all(*order, timeout_s=60):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*map(call, range(30)))

    assert (await standing(judge), await standing(sandbox)) == ((0, 0), (0, 0))


async def test_a_block_cancelled_at_any_point_leaves_nothing(pair: tuple[Limiter, Limiter]) -> None:
    judge, sandbox = pair

    async def call() -> None:
        async with lease_all(judge, sandbox):
            await asyncio.sleep(30)

    async with sandbox.lease():
        for number in range(40):
            task = asyncio.create_task(call())
            await asyncio.sleep(number * 0.0005)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        while await standing(judge) != (0, 0):
            await asyncio.sleep(0.01)

    usage = await judge.usage()
    assert usage.rpm_level == usage.rpm_capacity


@pytest.mark.parametrize(
    ("names", "tokens", "says"),
    [
        ([], 0, "one of each name"),
        (["a", "a"], 0, r"got \['a'\]"),
        (["a"], {"b": 1}, r"\['b'\] are none of \['a'\]"),
        (["a"], -1, "got -1"),
    ],
)
def test_nonsense_is_refused_by_name(names: list[str], tokens: object, says: str) -> None:
    limiters = [Limiter("redis://localhost:1/0", Limits(name=name)) for name in names]
    with pytest.raises(BadLimits, match=says):
        lease_all(*limiters, tokens=tokens)  # type: ignore[arg-type]
