"""RateLimitedRewardManager keeps what code written for verl's asserts, and its limits hold."""

from __future__ import annotations

import asyncio
import copy
import functools
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from client_consumer import until
from limited_rows import Letters, reset, row

from queue_client.compat import RateLimitedRewardManager
from queue_client.verl import NoReward


async def right(data_source, solution_str, ground_truth, extra_info=None):
    """A judge that always agrees."""
    return 1.0


async def seconds(managers, count: int) -> float:
    """How long so many rows take, all at once."""
    began = time.monotonic()
    await asyncio.gather(*(managers.run_single(row()) for _ in range(count)))
    return time.monotonic() - began


async def test_a_number_is_the_reward_and_the_accuracy(make) -> None:
    found = await make(right).run_single(row())
    assert found["reward_score"] == 1.0
    assert found["reward_extra_info"]["acc"] == 1.0
    assert found["reward_extra_info"]["failed"] is False


async def test_all_keys_of_a_dict_are_kept(make) -> None:
    async def judge(data_source, solution_str, ground_truth, extra_info=None):
        return {"score": 0.5, "correct": True, "reasoning": "so so", "steps": [1, 2]}

    found = await make(judge).run_single(row())
    info = found["reward_extra_info"]
    assert found["reward_score"] == 0.5
    assert (info["score"], info["correct"], info["reasoning"]) == (0.5, True, "so so")
    assert info["steps"] == "[1, 2]"


async def test_a_sync_function_is_called_in_a_thread(make) -> None:
    threads = []

    def judge(data_source, solution_str, ground_truth, extra_info=None):
        threads.append(threading.current_thread())
        return 1.0

    manager = make(judge)
    assert manager.is_async_reward_score is False
    assert (await manager.run_single(row()))["reward_score"] == 1.0
    assert threads[0] is not threading.main_thread()
    until(lambda: not threads[0].is_alive())


async def test_async_functions_are_known_through_partials_and_objects(make) -> None:
    class Judge:
        async def __call__(self, data_source, solution_str, ground_truth, extra_info=None):
            return 1.0

    for function in (functools.partial(right), Judge(), lambda **fields: right(**fields)):
        reset()
        manager = make(function)
        assert (await manager.run_single(row()))["reward_score"] == 1.0


async def test_a_timeout_is_zero_and_says_so(make) -> None:
    async def slow(data_source, solution_str, ground_truth, extra_info=None):
        await asyncio.sleep(60)

    found = await make(slow, timeout=0.2).run_single(row())
    assert found["reward_score"] == 0.0
    assert found["reward_extra_info"]["timeout"] is True
    assert found["reward_extra_info"]["acc"] == 0.0
    assert found["reward_extra_info"]["kind"] == "timeout"


async def test_an_exception_is_zero_and_says_so(make) -> None:
    async def failing(data_source, solution_str, ground_truth, extra_info=None):
        raise RuntimeError("Simulated API error")

    found = await make(failing).run_single(row())
    assert found["reward_score"] == 0.0
    assert "Simulated API error" in found["reward_extra_info"]["error"]
    assert found["reward_extra_info"]["acc"] == 0.0
    assert found["reward_extra_info"]["timeout"] is False


@pytest.mark.parametrize("value", [None, float("nan"), {"points": 1}, "one"])
async def test_what_is_no_reward_is_a_failure(make, value) -> None:
    async def odd(data_source, solution_str, ground_truth, extra_info=None):
        return value

    assert (await make(odd).run_single(row()))["reward_extra_info"]["failed"] is True


async def test_failures_raise_if_so_chosen(make) -> None:
    async def failing(data_source, solution_str, ground_truth, extra_info=None):
        raise RuntimeError("Simulated API error")

    with pytest.raises(NoReward, match="Simulated API error"):
        await make(failing, on_failure="raise").run_single(row())


async def test_a_source_that_nobody_scores_is_an_error(make) -> None:
    async def unknown(data_source, solution_str, ground_truth, extra_info=None):
        raise NotImplementedError(f"Reward function is not implemented for {data_source!r}")

    with pytest.raises(NotImplementedError, match="mine"):
        await make(unknown).run_single(row())


async def test_extra_info_reaches_the_function_as_a_copy(make) -> None:
    seen = []

    async def judge(data_source, solution_str, ground_truth, extra_info=None):
        seen.append(copy.deepcopy(extra_info))
        extra_info["touched"] = extra_info["nested"]["touched"] = True
        return 1.0

    data = row(nested={"depth": 1})
    await make(judge).run_single(data)
    assert seen == [{"nested": {"depth": 1}}]
    assert data.non_tensor_batch["extra_info"][0] == {"nested": {"depth": 1}}


async def test_requests_a_minute_hold_one_after_the_other(make) -> None:
    manager = make(right, max_rpm=60, max_concurrent=10)
    began = time.monotonic()
    for _ in range(3):
        await manager.run_single(row())
    assert time.monotonic() - began >= 1.8


async def test_tokens_a_minute_hold_and_the_first_call_waits_for_nothing(make) -> None:
    manager = make(right, max_tpm=6000, estimated_tokens_per_request=200, max_concurrent=10)
    began = time.monotonic()
    await manager.run_single(row())
    first = time.monotonic() - began
    await manager.run_single(row())
    assert first < 1.0
    assert time.monotonic() - began >= 1.8


async def test_no_more_run_at_once_than_allowed(make) -> None:
    running = most = 0

    async def judge(data_source, solution_str, ground_truth, extra_info=None):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return 1.0

    assert await seconds(make(judge, max_concurrent=2), 5) >= 0.02
    assert most == 2


async def test_all_limits_hold_together(make) -> None:
    manager = make(
        right, max_concurrent=2, max_rpm=120, max_tpm=12_000, estimated_tokens_per_request=100
    )
    assert await seconds(manager, 6) >= 1.8


async def test_a_high_rate_is_kept(make) -> None:
    assert await seconds(make(right, max_rpm=6000, max_concurrent=200), 200) >= 0.9


async def test_a_stuck_call_saves_up_no_burst(make) -> None:
    """Requests are charged when they start, not while they wait for a place."""
    starts = []

    async def judge(data_source, solution_str, ground_truth, extra_info=None):
        starts.append(time.monotonic())
        await asyncio.sleep(1.5 if len(starts) == 1 else 0)
        return 1.0

    manager = make(judge, max_rpm=300, max_concurrent=1)
    await seconds(manager, 12)
    after = [start - starts[1] for start in starts[1:]]
    assert sum(start < 0.5 for start in after) <= 5 + 3  # a second's worth, and half of one


async def test_initialising_twice_keeps_the_limits_and_warns(make, caplog) -> None:
    manager = make(right, max_rpm=60, max_concurrent=2)
    semaphore = RateLimitedRewardManager._semaphore
    RateLimitedRewardManager.init_class({"reward": {"max_rpm": 600, "max_concurrent": 7}}, None)
    assert RateLimitedRewardManager._semaphore is semaphore
    assert manager._max_rpm == 60
    assert {"limit ignored" in record.message for record in caplog.records} == {True}
    assert len(caplog.records) == 2


async def test_the_old_names_are_the_same_objects(make) -> None:
    manager = make(right, max_rpm=60, max_tpm=6000)
    assert manager.concurrency_limiter is RateLimitedRewardManager.concurrency_limiter
    assert manager.rpm_bucket is RateLimitedRewardManager._rpm_limiter
    assert RateLimitedRewardManager.tpm_bucket is manager.tpm_bucket
    assert manager.rpm_bucket.rate_limit == 1.0
    assert manager.tpm_bucket.max_tokens == 100.0
    async with manager.concurrency_limiter:
        assert (await asyncio.to_thread(manager.concurrency_limiter.locked)) is True
    RateLimitedRewardManager.rpm_bucket = None
    assert RateLimitedRewardManager._rpm_limiter is None


@pytest.mark.parametrize(
    "limits",
    [{"max_rpm": 0}, {"max_rpm": "sixty"}, {"max_tpm": -1}, {"max_concurrent": 0}, {"timeout": 0}],
)
async def test_limits_that_make_no_sense_are_refused_and_leave_nothing_half_done(
    make, limits
) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        make(right, **limits)
    assert RateLimitedRewardManager._class_initialized is False
    assert RateLimitedRewardManager._semaphore is None
    manager = make(right, max_rpm=60)
    assert manager.rpm_bucket is not None


async def test_a_wait_without_end_is_a_failure(make) -> None:
    manager = make(right, max_rpm=1, limit_wait_s=2)
    first, second = await asyncio.gather(manager.run_single(row()), manager.run_single(row()))
    assert first["reward_score"] == 1.0
    assert second["reward_extra_info"]["kind"] == "limit_timeout"


async def test_a_stuck_thread_keeps_its_place_and_nobody_elses(make) -> None:
    release, inside = threading.Event(), []

    def stuck(data_source, solution_str, ground_truth, extra_info=None):
        inside.append(threading.current_thread())
        release.wait(60)
        return 1.0

    manager = make(stuck, timeout=0.5, limit_wait_s=2)
    first = await manager.run_single(row())
    second = await manager.run_single(row())
    assert first["reward_extra_info"]["kind"] == "timeout"
    assert second["reward_extra_info"]["kind"] == "limit_timeout"
    assert len(inside) == 1
    release.set()
    await asyncio.to_thread(until, lambda: not inside[0].is_alive())
    found = await manager.run_single(row())
    assert found["reward_score"] == 1.0


async def test_a_busy_thread_is_stopped(make) -> None:
    inside = []

    def busy(data_source, solution_str, ground_truth, extra_info=None):
        inside.append(threading.current_thread())
        while True:
            time.sleep(0.001)

    found = await make(busy, timeout=0.2).run_single(row())
    assert found["reward_extra_info"]["timeout"] is True
    await asyncio.to_thread(until, lambda: not inside[0].is_alive())


def test_threads_with_loops_of_their_own_share_the_limits() -> None:
    reset()
    starts: list[float] = []

    async def judge(data_source, solution_str, ground_truth, extra_info=None):
        starts.append(time.monotonic())
        return 1.0

    config = {"reward": {"max_rpm": 600, "max_concurrent": 100}}
    manager = RateLimitedRewardManager(config=config, tokenizer=Letters(), compute_score=judge)
    threads = [threading.Thread(target=lambda: asyncio.run(seconds(manager, 10))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    reset()
    assert len(starts) == 30
    assert max(starts) - min(starts) >= 1.9  # 30 requests at 10 a second, 10 of them at once


PROCESS = """
import asyncio, sys, time
sys.path[:0] = sys.argv[2:]
from limited_rows import Letters, row
from queue_client.compat import RateLimitedRewardManager

async def judge(data_source, solution_str, ground_truth, extra_info=None):
    print(time.time(), flush=True)
    return 1.0

async def main():
    config = {"reward": {"max_rpm": 600, "max_concurrent": 100, "redis_url": sys.argv[1]}}
    manager = RateLimitedRewardManager(config=config, tokenizer=Letters(), compute_score=judge)
    await asyncio.gather(*(manager.run_single(row()) for _ in range(15)))

asyncio.run(main())
"""


def test_two_processes_share_the_clusters_limits(redis_url) -> None:
    here = Path(__file__).parent
    paths = [str(here), str(here.parent.parent)]
    command = [sys.executable, "-c", PROCESS, redis_url, *paths]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    starts = sorted(float(line) for one in both for line in one.communicate(timeout=60)[0].split())
    assert len(starts) == 30
    # a second's worth at once and then ten a second: of each process alone it would be half of it
    assert starts[-1] - starts[0] >= 1.9


async def test_a_named_bucket_is_shared(redis_url) -> None:
    from queue_client.compat import AsyncTokenBucket

    both = [
        AsyncTokenBucket(rate_limit=10, max_tokens=10, name="shared", redis_url=redis_url)
        for _ in range(2)
    ]
    began = time.monotonic()
    await both[0].acquire(10)
    await both[1].acquire(20)  # more than it holds: in pieces
    assert time.monotonic() - began >= 1.9
    assert (await asyncio.to_thread(lambda: both[0].tokens)) <= 10
    for bucket in both:
        await bucket.close()
