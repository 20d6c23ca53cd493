"""Named limits inside functions and around them, in every executor."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from scoring_support import request

from queue_client import Kind, Output
from worker.scoring.runners import ThreadRunner

LIMITED = Path(__file__).with_name("limited_functions.py")
HELD = [("holds", "async"), ("holds_sync", "thread"), ("holds_sync", "process")]


@pytest.fixture
async def limited_engine(make_engine, redis_url):
    """`await limited_engine("judge", {"rpm": 60})`: one limit named judge."""

    async def make(function, judge, **reward):
        return await make_engine(
            redis={"url": redis_url},
            limits={"judge": judge},
            reward={"function": f"{LIMITED}:{function}", **reward},
            worker={"processes": 4},
        )

    return make


@pytest.mark.parametrize(
    ("function", "executor"),
    [("judge", "auto"), ("judge_sync", "auto"), ("judge_sync", "thread"),
     ("judge_sync", "process")],
)  # fmt: skip
async def test_calls_in_flight_never_exceed_the_limit(
    limited_engine, connection, redis_url, function, executor
):
    engine = await limited_engine(function, {"max_concurrent": 2}, executor=executor)
    info = {"url": redis_url, "call_s": 0.05}

    outcomes = await asyncio.gather(*(engine.score(request(extra_info=info)) for _ in range(12)))

    assert [o.reward for o in outcomes] == [1.0] * 12, outcomes[0]
    assert connection.zscore("test:most", "most") <= 2
    assert connection.zcard("test:calls") == 12
    assert sum(outcome.wait_s for outcome in outcomes) > 0.5, "waiting is reported"
    assert max(outcome.run_s for outcome in outcomes) < sum(o.wait_s for o in outcomes)


async def test_a_sync_function_with_limits_runs_in_a_thread_where_it_may_wait(limited_engine):
    engine = await limited_engine("judge_sync", {"max_concurrent": 2})

    manager = engine._router._default._manager
    assert isinstance(manager._scorer._runner, ThreadRunner)


@pytest.mark.parametrize(
    ("function", "level"), [("settles", 960), ("says_usage", 970), ("says_usage_sync", 970)]
)
async def test_tokens_are_charged_as_they_were_used(limited_engine, function, level):
    engine = await limited_engine(function, {"tpm": 1000, "burst_s": 60})

    assert (await engine.score(request())).ok

    stands = await engine.limits["judge"].usage()
    assert stands.in_flight == 0
    assert abs(stands.tpm_level - level) <= 5, "the rest is what a moment refills"


async def test_two_leases_one_after_the_other_need_one_place(limited_engine):
    engine = await limited_engine("twice", {"max_concurrent": 1}, timeout_s=5, limit_wait_s=5)

    outcomes = await asyncio.gather(*(engine.score(request()) for _ in range(4)))

    assert all(outcome.ok for outcome in outcomes)


@pytest.mark.parametrize("function", ["meets_429", "meets_429_sync"])
async def test_one_429_slows_everybody_once_and_the_row_is_tried_again(
    limited_engine, connection, redis_url, function
):
    engine = await limited_engine(function, {"max_concurrent": 1}, backoff_s=0.01)

    outcomes = await asyncio.gather(
        *(engine.score(request(extra_info={"url": redis_url})) for _ in range(4))
    )

    assert all(outcome.ok for outcome in outcomes)
    assert sorted(outcome.attempts for outcome in outcomes) == [1, 1, 1, 2]
    starts = sorted(score for _, score in connection.zrange("test:calls", 0, -1, withscores=True))
    assert starts[1] - starts[0] >= 0.9, "nobody called before Retry-After had passed"


async def test_a_429_under_the_rate_limited_manager_pauses_its_limit(
    limited_engine, connection, redis_url
):
    engine = await limited_engine(
        "told_once", {"max_concurrent": 1}, manager="rate_limited", limit="judge", backoff_s=0.01
    )

    outcomes = await asyncio.gather(
        *(engine.score(request(extra_info={"url": redis_url})) for _ in range(3))
    )

    assert sorted(outcome.attempts for outcome in outcomes) == [1, 1, 2]
    starts = sorted(score for _, score in connection.zrange("test:calls", 0, -1, withscores=True))
    assert starts[1] - starts[0] >= 0.9
    assert (await engine.limits["judge"].usage()).throttles == 1


@pytest.mark.parametrize(("function", "executor"), HELD)
async def test_a_timeout_gives_the_lease_back(limited_engine, function, executor):
    engine = await limited_engine(function, {"max_concurrent": 1}, executor=executor, timeout_s=1)
    await engine.score(request(extra_info={"call_s": 0}))  # the helper is warm

    outcome = await engine.score(request(extra_info={"call_s": 3}))

    assert outcome.kind is Kind.TIMEOUT
    assert outcome.run_s < 2.5
    if executor == "async":
        assert (await engine.limits["judge"].usage()).in_flight == 0


@pytest.mark.parametrize(("function", "executor"), HELD)
async def test_a_row_that_gets_no_lease_in_time_is_a_limit_timeout(
    limited_engine, function, executor
):
    engine = await limited_engine(
        function, {"max_concurrent": 1}, executor=executor, limit_wait_s=1, timeout_s=5
    )
    await engine.score(request(extra_info={"call_s": 0}))  # the helper is warm

    outcomes = await asyncio.gather(
        *(engine.score(request(extra_info={"call_s": 3.5})) for _ in range(2))
    )

    kinds = sorted(outcome.kind or "" for outcome in outcomes)
    assert kinds == ["", Kind.LIMIT_TIMEOUT]
    late = next(outcome for outcome in outcomes if not outcome.ok)
    assert late.retryable
    assert 0.9 < late.wait_s < 3.5
    assert late.run_s < 2


@pytest.mark.parametrize(("function", "executor"), HELD)
async def test_waiting_for_a_limit_does_not_use_up_the_run_time(limited_engine, function, executor):
    engine = await limited_engine(function, {"max_concurrent": 1}, executor=executor, timeout_s=2)
    await engine.score(request(extra_info={"call_s": 0}))

    outcomes = await asyncio.gather(
        *(engine.score(request(extra_info={"call_s": 0.6})) for _ in range(5))
    )

    assert all(outcome.ok for outcome in outcomes), outcomes
    assert max(outcome.wait_s for outcome in outcomes) > 2


async def test_a_budget_that_ends_amid_waiting_is_a_limit_timeout(limited_engine):
    engine = await limited_engine("holds", {"max_concurrent": 0}, budget_s=0.5)

    outcome = await engine.score(request(extra_info={"call_s": 0}))

    assert outcome.kind is Kind.LIMIT_TIMEOUT


async def test_a_misspelt_limit_names_the_nearest_one(limited_engine):
    engine = await limited_engine("asks_for_another", {"rpm": 60})

    outcome = await engine.score(request())

    assert outcome.kind is Kind.SCORER_ERROR
    assert "did you mean 'judge'" in outcome.message


async def test_a_row_that_costs_more_than_its_limit_admits_is_over_limit(limited_engine):
    engine = await limited_engine(
        "plain_call", {"tpm": 6000}, manager="rate_limited", limit="judge", tokens=8000
    )

    outcome = await engine.score(request())

    assert outcome.kind is Kind.OVER_LIMIT
    assert not outcome.retryable
    assert "8000" in outcome.message


@pytest.mark.parametrize(
    ("tokens", "charged"), [("auto", 7), (250, 250), (f"{LIMITED}:cost_of", 12)]
)
async def test_a_row_costs_its_length_a_number_or_what_an_estimator_says(
    limited_engine, redis_url, tokens, charged
):
    engine = await limited_engine(
        "plain_call", {"tpm": 60_000}, manager="rate_limited", limit="judge", tokens=tokens
    )
    outputs = [Output(text="four", prompt_ids=[1, 2, 3], response_ids=[4, 5, 6, 7])]

    outcome = await engine.score(request(outputs=outputs, extra_info={"url": redis_url}))

    assert outcome.ok, outcome.message
    stands = await engine.limits["judge"].usage()
    assert 60_000 - charged <= stands.tpm_level <= 60_000 - charged + 1000 * 60
    assert stands.in_flight == 0


async def test_rows_are_settled_with_the_usage_the_function_returns(limited_engine, redis_url):
    engine = await limited_engine(
        "plain_call",
        {"tpm": 60, "burst_s": 60},
        manager="rate_limited",
        limit="judge",
        tokens=50,
    )

    outcome = await engine.score(request(extra_info={"url": redis_url, "usage": 20}))

    assert outcome.ok
    assert 40 <= (await engine.limits["judge"].usage()).tpm_level <= 45


async def test_true_usage_above_the_estimates_never_lets_more_through(
    limited_engine, connection, redis_url
):
    """100 tokens a minute, five calls at once that really take 58 to 175."""
    engine = await limited_engine(
        "plain_call",
        {"tpm": 100, "strict": True, "oversize": "alone"},
        manager="rate_limited",
        limit="judge",
        tokens=60,
        limit_wait_s=1,
    )
    used = (58, 80, 175, 175, 175)

    outcomes = await asyncio.gather(
        *(engine.score(request(extra_info={"url": redis_url, "usage": n})) for n in used)
    )

    assert connection.zcard("test:calls") <= 1, "the first call took the minute"
    assert sorted({o.kind for o in outcomes if not o.ok}) == [Kind.LIMIT_TIMEOUT]


async def test_rows_of_another_source_spend_nothing_of_the_judges_limit(make_engine, redis_url):
    engine = await make_engine(
        redis={"url": redis_url},
        limits={"judge": {"rpm": 60}},
        reward={
            "manager": "rate_limited",
            "limit": "judge",
            "function": f"{LIMITED}:plain_call",
            "sources": {"openai/gsm8k": {"function": "builtin:gsm8k", "manager": "naive"}},
        },
    )
    rule = request("#### 42", data_source="openai/gsm8k", ground_truth="42")

    outcomes = await asyncio.gather(*(engine.score(rule) for _ in range(100)))
    judged = await engine.score(request("x", data_source="chat", extra_info={"url": redis_url}))

    assert all(outcome.reward == 1.0 for outcome in outcomes)
    assert judged.ok
    assert (await engine.limits["judge"].usage()).rpm_level >= 59


async def test_the_originals_defaults_hold_where_nothing_is_set(make_engine, redis_url):
    engine = await make_engine(
        redis={"url": redis_url},
        reward={"manager": "rate_limited", "function": "misbehave_async", "max_rpm": 120},
    )

    assert (await engine.score(request("other"))).ok

    limits = engine.limits["reward"].limits
    assert (limits.max_concurrent, limits.rpm, limits.tpm) == (100, 120, 100_000)


async def test_cancelling_a_row_that_waits_or_runs_leaves_nothing_in_flight(limited_engine):
    engine = await limited_engine("holds", {"max_concurrent": 1})
    rows = [
        asyncio.ensure_future(engine.score(request(extra_info={"call_s": 30}))) for _ in range(3)
    ]
    end = time.monotonic() + 10
    while not (
        (stands := await engine.limits["judge"].usage()).in_flight == 1 and stands.waiting == 2
    ):
        assert time.monotonic() < end, stands
        await asyncio.sleep(0.02)

    for row in rows:
        row.cancel()
    await asyncio.gather(*rows, return_exceptions=True)

    stands = await engine.limits["judge"].usage()
    assert (stands.in_flight, stands.waiting) == (0, 0)


async def test_approvals_never_pile_up_behind_slow_calls(limited_engine, connection, redis_url):
    """120 a minute from a bucket of one second: two slow calls, then twelve that had queued."""
    engine = await limited_engine("judge", {"max_concurrent": 2, "rpm": 120, "burst_s": 1})
    slow = [request(extra_info={"url": redis_url, "call_s": 2}) for _ in range(2)]
    fast = [request(extra_info={"url": redis_url, "call_s": 0}) for _ in range(12)]

    outcomes = await asyncio.gather(*(engine.score(row) for row in slow + fast))

    assert all(outcome.ok for outcome in outcomes)
    starts = sorted(score for _, score in connection.zrange("test:calls", 0, -1, withscores=True))
    for at, start in enumerate(starts):
        within = sum(1 for other in starts[at:] if other < start + 1)
        assert within <= 2 + 2 + 1, "the bucket, what a second refills, one for a slow machine"


async def test_rows_get_their_leases_in_the_order_in_which_they_asked(
    limited_engine, connection, redis_url
):
    engine = await limited_engine("in_order", {"rpm": 1200, "burst_s": 0.05})
    rows = [request(extra_info={"url": redis_url, "at": at}) for at in range(50)]

    outcomes = await asyncio.gather(*map(engine.score, rows))

    assert all(outcome.ok for outcome in outcomes)
    order = [int(at) for at in connection.lrange("test:order", 0, -1)]
    inversions = sum(1 for at, one in enumerate(order) for other in order[at:] if other < one)
    assert len(order) == 50
    assert inversions <= 50 * 49 / 2 / 100
