"""AsyncTokenBucket does what code written for verl's expects, and starves nobody."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from queue_client.compat import AsyncTokenBucket


async def took(awaitable) -> float:
    """Seconds it took."""
    began = time.monotonic()
    await awaitable
    return time.monotonic() - began


async def test_it_starts_full_and_untouched() -> None:
    bucket = AsyncTokenBucket(rate_limit=10.0, max_tokens=20.0)
    assert (bucket.rate_limit, bucket.max_tokens, bucket.tokens) == (10.0, 20.0, 20.0)
    assert bucket.last_update is None
    await bucket.acquire(1.0)
    assert bucket.last_update is not None


async def test_one_second_of_rate_is_the_default_size() -> None:
    assert AsyncTokenBucket(rate_limit=7.0).max_tokens == 7.0


async def test_other_spellings_mean_the_same() -> None:
    bucket = AsyncTokenBucket(rate=10.0, capacity=20.0)
    await bucket.acquire()
    assert (bucket.rate, bucket.capacity) == (bucket.rate_limit, bucket.max_tokens) == (10.0, 20.0)
    assert bucket.last_time == bucket.last_update is not None


async def test_what_is_there_is_taken_at_once() -> None:
    bucket = AsyncTokenBucket(rate_limit=10.0, max_tokens=10.0)
    assert await took(bucket.acquire(5.0)) < 0.5
    assert bucket.tokens == pytest.approx(5.0, abs=0.5)


async def test_a_token_is_the_default_cost() -> None:
    bucket = AsyncTokenBucket(rate_limit=0.1, max_tokens=10.0)
    await bucket.acquire()
    assert bucket.tokens == pytest.approx(9.0, abs=0.1)


async def test_fractions_are_exact() -> None:
    bucket = AsyncTokenBucket(rate_limit=0.01, max_tokens=2.0)
    for _ in range(3):
        await bucket.acquire(0.5)
    assert bucket.tokens == pytest.approx(0.5, abs=0.05)


async def test_what_is_missing_is_waited_for() -> None:
    bucket = AsyncTokenBucket(rate_limit=10.0, max_tokens=10.0)
    await bucket.acquire(10.0)
    assert 0.4 <= await took(bucket.acquire(5.0)) < 2.0


async def test_it_refills_up_to_its_size_and_no_further() -> None:
    bucket = AsyncTokenBucket(rate_limit=100.0, max_tokens=10.0)
    await bucket.acquire(10.0)
    bucket.last_update -= 5.0  # five seconds ago
    await bucket.acquire(1.0)
    assert bucket.tokens == pytest.approx(9.0, abs=0.1)


async def test_more_than_it_holds_waits_until_as_much_has_flowed_in() -> None:
    bucket = AsyncTokenBucket(rate_limit=10.0, max_tokens=10.0)
    assert 3.5 <= await took(bucket.acquire(50.0)) <= 6.0


async def test_more_than_it_holds_waits_longer_when_it_is_empty() -> None:
    bucket = AsyncTokenBucket(rate_limit=10.0, max_tokens=10.0)
    await bucket.acquire(10.0)
    assert 1.3 <= await took(bucket.acquire(15.0)) <= 3.0


async def test_five_at_once_take_no_more_than_there_is() -> None:
    bucket = AsyncTokenBucket(rate_limit=10.0, max_tokens=10.0)
    assert await took(asyncio.gather(*(bucket.acquire(3.0) for _ in range(5)))) >= 0.4


async def test_ten_at_once_empty_it() -> None:
    bucket = AsyncTokenBucket(rate_limit=0.5, max_tokens=100.0)
    await asyncio.gather(*(bucket.acquire(10.0) for _ in range(10)))
    assert bucket.tokens == pytest.approx(0.0, abs=1.0)


async def test_a_high_rate_goes_through_fast() -> None:
    bucket = AsyncTokenBucket(rate_limit=1000.0, max_tokens=1000.0)
    assert await took(asyncio.gather(*(bucket.acquire(10.0) for _ in range(100)))) < 1.5


async def test_the_rate_is_kept() -> None:
    bucket = AsyncTokenBucket(rate_limit=20.0, max_tokens=20.0)
    await bucket.acquire(20.0)
    seconds = await took(asyncio.gather(*(bucket.acquire(1.0) for _ in range(20))))
    assert seconds >= 0.95


async def test_callers_are_served_in_order_of_arrival() -> None:
    bucket = AsyncTokenBucket(rate_limit=200.0, max_tokens=20.0)
    await bucket.acquire(20.0)
    served: list[int] = []

    async def caller(number: int) -> None:
        await bucket.acquire(1 + number % 7)
        served.append(number)

    await asyncio.gather(*(caller(number) for number in range(40)))
    assert served == list(range(40))


async def test_a_large_request_is_not_starved_by_small_ones() -> None:
    bucket = AsyncTokenBucket(rate_limit=50.0, max_tokens=20.0)
    await bucket.acquire(20.0)
    done = asyncio.Event()
    before = 0

    async def small() -> None:
        nonlocal before
        while not done.is_set():
            await bucket.acquire(1.0)
            before += not done.is_set()

    tasks = [asyncio.create_task(small()) for _ in range(8)]
    await asyncio.sleep(0)
    await bucket.acquire(20.0)
    done.set()
    await asyncio.gather(*tasks)
    assert before <= 8  # those that stood before it


async def test_each_caller_wakes_a_few_times_however_many_wait(monkeypatch) -> None:
    bucket = AsyncTokenBucket(rate_limit=2000.0, max_tokens=10.0)
    tries = 0
    one_try = bucket._gate._try

    def counted(*args):
        nonlocal tries
        tries += 1
        return one_try(*args)

    monkeypatch.setattr(bucket._gate, "_try", counted)
    await asyncio.gather(*(bucket.acquire(1.0) for _ in range(400)))
    assert tries <= 4 * 400


async def test_a_cancelled_caller_takes_nothing() -> None:
    bucket = AsyncTokenBucket(rate_limit=1.0, max_tokens=10.0)
    waiting = asyncio.create_task(bucket.acquire(100.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await took(bucket.acquire(10.0)) < 1.0
    assert bucket.tokens >= 0


def test_several_loops_in_threads_share_one() -> None:
    bucket = AsyncTokenBucket(rate_limit=100.0, max_tokens=10.0)
    errors: list[BaseException] = []

    def work() -> None:
        async def take() -> None:
            await asyncio.gather(*(bucket.acquire(1.0) for _ in range(20)))

        try:
            asyncio.run(take())
        except BaseException as error:
            errors.append(error)

    began = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors
    assert time.monotonic() - began >= 0.65  # 80 tokens, 10 of them there


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "ten", True])
def test_a_rate_that_makes_no_sense_is_refused(value) -> None:
    with pytest.raises(ValueError, match="rate_limit: a number above 0 expected"):
        AsyncTokenBucket(rate_limit=value)


async def test_a_negative_cost_is_refused() -> None:
    bucket = AsyncTokenBucket(rate_limit=1.0)
    with pytest.raises(ValueError, match="num_tokens"):
        await bucket.acquire(-5)
    assert bucket.tokens == 1.0


def test_a_shared_bucket_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        AsyncTokenBucket(1.0, redis_url="redis://localhost:1/0")
