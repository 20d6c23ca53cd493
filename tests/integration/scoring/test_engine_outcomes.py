"""One trajectory in, one outcome out: kinds, fields, order, budgets."""

from __future__ import annotations

import asyncio
import time

import pytest
from scoring_support import request

from queue_client import Kind, Output, Trajectory
from worker.scoring import ScoreRequest, ScoringEngine
from worker.settings import SettingsError, settings_from


async def test_failed_rows_never_disturb_their_neighbours_whoever_fails_first(make_engine):
    engine = await make_engine(reward={"function": "misbehave_async"})
    texts = ["exactly", "raise it", "other"]

    for turn in range(3):
        turned = texts[turn:] + texts[:turn]
        outcomes = await asyncio.gather(*(engine.score(request(text)) for text in turned))
        by_text = dict(zip(turned, outcomes, strict=True))

        assert by_text["exactly"].reward == 1.0
        assert by_text["exactly"].extra == {"score": 1.0, "format": 1}
        assert by_text["other"].reward == 0.5
        assert by_text["raise it"].kind is Kind.SCORER_ERROR
        assert by_text["raise it"].reward is None
        assert by_text["raise it"].message == "ValueError: cannot parse it"


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("exit", Kind.SCORER_ERROR, "SystemExit: 3"),
        ("cancel", Kind.SCORER_ERROR, "cancelled itself"),
        ("timeout", Kind.TIMEOUT, "took too long"),
        ("nan", Kind.BAD_SCORE, "not finite"),
        ("sleep 60", Kind.TIMEOUT, "within 0.5 s"),
    ],
)
async def test_an_async_function_ends_as_one_kind(make_engine, text, kind, says):
    engine = await make_engine(reward={"function": "misbehave_async", "timeout_s": 0.5})

    outcome = await engine.score(request(text, uid="u1"))

    assert (outcome.status, outcome.kind) == ("failed", kind)
    assert says in outcome.message
    assert outcome.uid == "u1"
    assert (await engine.score(request("fine"))).reward == 0.5


async def test_a_skipped_row_is_scored_without_a_reward(make_engine):
    engine = await make_engine(reward={"function": "misbehave_async"})

    outcome = await engine.score(request("skip"))

    assert (outcome.status, outcome.reward, outcome.kind) == ("scored", None, None)


async def test_a_function_that_ignores_its_cancellation_costs_no_place(make_engine):
    engine = await make_engine(reward={"function": "misbehave_async", "timeout_s": 0.2})
    began = time.monotonic()

    outcome = await engine.score(request("stubborn 4"))

    assert outcome.kind is Kind.TIMEOUT
    assert time.monotonic() - began < 3.5
    await asyncio.sleep(0)


@pytest.mark.parametrize("function", ["scorer", "partial_async", "hidden_async"])
async def test_an_async_function_is_awaited_however_it_is_wrapped(make_engine, function):
    engine = await make_engine(reward={"function": function})

    outcomes = [await engine.score(request("other")) for _ in range(2)]

    assert [outcome.reward for outcome in outcomes] in ([1.0, 1.0], [0.5, 0.5])


async def test_outcomes_belong_to_their_rows_whatever_finishes_first(make_engine):
    engine = await make_engine(reward={"function": "checksum"})
    rows = 40
    requests = [
        request(f"text {at}", ground_truth=str(at), uid=f"u{at}",
                extra_info={"delay_s": (rows - at) / 400})
        for at in range(rows)
    ]  # fmt: skip

    outcomes = await asyncio.gather(*map(engine.score, requests))

    for at, outcome in enumerate(outcomes):
        assert outcome.extra["seen"] == [f"text {at}", str(at), f"u{at}"]
        assert outcome.uid == f"u{at}"


async def test_rows_are_routed_by_source_and_an_unknown_one_fails_alone(make_engine):
    engine = await make_engine(
        reward={"sources": {"my/*": {"function": "builtin:gsm8k_flexible", "manager": "naive"}}}
    )

    known, mine, unknown = await asyncio.gather(
        engine.score(request("so #### 42", data_source="openai/gsm8k", ground_truth="42")),
        engine.score(request("it is 42", data_source="my/own", ground_truth="42")),
        engine.score(request("so #### 42", data_source="nobody/knows", ground_truth="42")),
    )

    assert known.reward == 1.0
    assert mine.reward == 1.0
    assert unknown.kind is Kind.BAD_INPUT
    assert not unknown.retryable
    assert "openai/gsm8k" in unknown.message
    assert "my/*" in unknown.message


async def test_a_source_that_sets_only_rules_keeps_its_built_in_function(make_engine):
    engine = await make_engine(reward={"sources": {"openai/gsm8k": {"timeout_s": 5}}})

    outcome = await engine.score(request("#### 42", data_source="openai/gsm8k", ground_truth="42"))

    assert outcome.reward == 1.0


async def test_a_trajectory_with_several_outputs_is_scored_by_its_last(make_engine):
    engine = await make_engine(reward={"function": "misbehave_async"})
    outcome = await engine.score(request(outputs=[Output(text="nan"), Output(text="exactly")]))

    assert outcome.reward == 1.0


@pytest.mark.parametrize("executor", ["process", "thread", "async"])
async def test_a_function_that_asks_sees_every_output(make_engine, executor):
    engine = await make_engine(reward={"function": "joint", "executor": executor})
    counts = []
    for many in (1, 3, 2):
        outputs = [Output(text=f"t{at}", response_ids=[at, at]) for at in range(many)]
        outcome = await engine.score(request(outputs=outputs))
        counts.append(outcome.reward)
        assert outcome.extra["texts"] == [f"t{at}" for at in range(many)]
        assert outcome.extra["ids"] == [[at, at] for at in range(many)]

    assert counts == [1.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("trajectory", "says"),
    [
        (Trajectory(), "outputs: the trajectory has none"),
        (Trajectory(outputs=[Output()]), "neither text nor response_ids"),
        (Trajectory(outputs=[Output(response_ids=[1, 2])]), "no reward.tokenizer"),
    ],
)
async def test_a_row_that_cannot_be_read_is_bad_input(make_engine, trajectory, says):
    engine = await make_engine(reward={"function": "misbehave_async"})

    outcome = await engine.score(ScoreRequest(trajectory))

    assert outcome.kind is Kind.BAD_INPUT
    assert says in outcome.message


async def test_a_source_that_is_no_text_is_bad_input(make_engine):
    engine = await make_engine()

    outcome = await engine.score(request("x", data_source=["openai/gsm8k"]))

    assert outcome.kind is Kind.BAD_INPUT
    assert "list" in outcome.message


async def test_an_empty_response_is_scored_as_empty_text(make_engine):
    engine = await make_engine(reward={"function": "misbehave"})

    assert (await engine.score(request(outputs=[Output(response_ids=[])]))).reward == 0.0


@pytest.mark.parametrize(
    ("kind", "failures", "attempts", "status"),
    [
        (None, 2, 3, "scored"),
        (None, 9, 3, "failed"),
        ("sandbox", 1, 2, "scored"),
        ("4xx", 1, 1, "failed"),
        ("value", 1, 1, "failed"),
    ],
)
async def test_only_kinds_that_may_mend_are_tried_again(
    make_engine, tmp_path, kind, failures, attempts, status
):
    engine = await make_engine(reward={"function": "count_calls", "backoff_s": 0.01})
    info = {"calls": str(tmp_path / "calls"), "failures": failures, "kind": kind}

    outcome = await engine.score(request(extra_info=info, attempt=1))

    assert (outcome.status, outcome.attempts) == (status, attempts)
    assert len((tmp_path / "calls").read_text()) == attempts


async def test_attempts_count_on_from_the_pools(make_engine, tmp_path):
    engine = await make_engine(reward={"function": "count_calls", "backoff_s": 0.01})
    info = {"calls": str(tmp_path / "calls"), "failures": 1}

    assert (await engine.score(request(extra_info=info, attempt=3))).attempts == 4


async def test_a_budget_ends_a_row_amid_its_retries_and_says_how_often_it_was_tried(
    make_engine, tmp_path
):
    engine = await make_engine(
        reward={
            "function": "count_calls",
            "executor": "thread",
            "timeout_s": 0.6,
            "budget_s": 1.5,
            "backoff_s": 0.01,
            "retries": {"timeout": 3},
        }
    )
    info = {"calls": str(tmp_path / "calls"), "failures": 9, "kind": "sleep"}
    began = time.monotonic()

    outcome = await engine.score(request(extra_info=info))

    assert outcome.kind is Kind.TIMEOUT
    assert 2 <= outcome.attempts <= 3
    assert time.monotonic() - began < 10
    assert outcome.run_s < 5


async def test_a_row_past_its_deadline_is_not_scored(make_engine, tmp_path):
    engine = await make_engine(reward={"function": "count_calls"})
    info = {"calls": str(tmp_path / "calls"), "failures": 0}

    outcome = await engine.score(request(extra_info=info, deadline=time.monotonic() - 1))

    assert outcome.kind is Kind.TIMEOUT
    assert not (tmp_path / "calls").exists()


async def test_waiting_and_running_are_reported_apart(make_engine):
    engine = await make_engine(reward={"function": "misbehave_async"})

    outcome = await engine.score(request("sleep 0.2", queued_s=5.0))

    assert 0.2 <= outcome.run_s < 5
    assert 5.0 <= outcome.wait_s < 6


async def test_what_crosses_to_another_process_arrives_as_it_was(make_engine):
    engine = await make_engine(reward={"function": "echo"})
    text = "snowman ☃, lone \ud800 surrogate, \x00 zero"

    outcome = await engine.score(
        request(text, ground_truth=("a", "tuple"), extra_info={"pair": (1, 2), "big": 10**40})
    )

    assert outcome.ok, outcome.message
    assert outcome.extra["types"] == ["tuple", "tuple"]
    assert outcome.extra["big"] == str(10**40)
    assert outcome.extra["text"] == text


@pytest.mark.parametrize(
    ("reward", "names"),
    [
        ({"function": "no_such.py:f"}, "no_such.py"),
        ({"function": "builtin:gsm9k"}, "gsm8k"),
        ({"manager": "rate_limitd", "function": "builtin:gsm8k"}, "rate_limited"),
        ({"function": "builtin:gsm8k", "functions": {"a": "builtin:gsm8k"}}, "keep one"),
        ({"functions": {"a": "builtin:gsm8k"}, "weights": {"b": 1}}, "weights.b"),
        ({"weights": {"b": 1}, "function": "builtin:gsm8k"}, "reward.functions"),
        ({"manager": "reward_model"}, "path"),
        ({"function": "builtin:gsm8k", "manager": "rate_limited", "limit": "jugde"}, "judge"),
        (
            {"function": "builtin:gsm8k", "manager": "rate_limited", "limit": "judge", "rpm": 5},
            "keep one",
        ),
        ({"tokenizer": "/nowhere/at/all"}, "tokenizer"),
        ({"function": "builtin:gsm8k", "max_rpm": 60}, "reward.rpm: nothing uses it"),
        ({"max_tpm": 60}, "reward.tpm: nothing uses it"),
        ({"function": "builtin:gsm8k", "limit": "judge"}, "did you mean 'rate_limited'"),
        ({"sources": {"nobody/knows": {"timeout_s": 5}}}, "nobody/knows"),
    ],
)
async def test_wrong_settings_end_the_start_with_the_name(reward, names):
    engine = ScoringEngine(settings_from({"reward": reward, "limits": {"judge": {"rpm": 60}}}))

    with pytest.raises(SettingsError, match=names):
        await engine.start()
    await engine.close()
