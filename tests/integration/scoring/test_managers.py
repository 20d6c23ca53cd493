"""dapo, gdpo, remote, weighted sums, and managers that were written for verl."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from scoring_support import FUNCTIONS, request

from queue_client import Kind, Output
from worker.settings import SettingsError

PARTS = Path(__file__).with_name("combined_functions.py")
MANAGERS = Path(__file__).with_name("verl_manager.py")


def parts(*names, **more):
    return {"functions": {name: f"{PARTS}:{name}" for name in names}, **more}


async def test_a_weighted_sum_reports_each_part_by_its_name(make_engine):
    engine = await make_engine(reward=parts("correct", "form", weights={"form": 0.25}))

    outcome = await engine.score(request("<think> 42", ground_truth="42"))

    assert outcome.reward == 1.25
    assert outcome.extra == {"score": 1.25, "correct": 1.0, "correct/pred": "42", "form": 1.0}


async def test_a_part_that_fails_fails_the_row_with_its_name(make_engine):
    engine = await make_engine(reward=parts("correct", "breaks"))

    outcome = await engine.score(request("42", ground_truth="42"))

    assert outcome.kind is Kind.SCORER_ERROR
    assert outcome.message == "breaks: ValueError: no verdict"


async def test_a_skipped_part_is_left_out_and_only_skipped_parts_skip_the_row(make_engine):
    some = await make_engine(reward=parts("form", "skips"))
    none = await make_engine(reward=parts("skips"))

    assert (await some.score(request("<think>"))).reward == 1.0
    skipped = await none.score(request("<think>"))
    assert (skipped.status, skipped.reward) == ("scored", None)


async def test_parts_may_have_their_own_weight_arguments_and_executor(make_engine):
    engine = await make_engine(
        reward={
            "functions": {
                "long": {
                    "function": f"{FUNCTIONS}:misbehave",
                    "weight": -0.5,
                    "executor": "process",
                },
                "right": "builtin:gsm8k",
            }
        }
    )

    outcome = await engine.score(request("#### 42", data_source="openai/gsm8k", ground_truth="42"))

    assert outcome.reward == 1.0 - 0.5 * 7
    assert outcome.extra["long/pid"] != os.getpid()


def dapo(**cfg):
    return {
        "manager": "dapo",
        "kwargs": {
            "max_resp_len": 10,
            "overlong_buffer_cfg": {"enable": True, "len": 4, "penalty_factor": 1.0, **cfg},
        },
    }


@pytest.mark.parametrize(
    ("length", "penalty"), [(4, 0.0), (6, 0.0), (8, -0.5), (10, -1.0), (14, -1.0)]
)
async def test_dapo_takes_a_clamped_penalty_off_and_keeps_the_score(make_engine, length, penalty):
    engine = await make_engine(reward=dapo(log=True) | {"function": "misbehave_async"})

    outcome = await engine.score(
        request(outputs=[Output(text="exactly", response_ids=list(range(length)))])
    )

    assert outcome.reward == 1.0 + penalty
    assert outcome.extra["score"] == 1.0
    assert outcome.extra["overlong_reward"] == penalty
    assert outcome.extra["overlong"] is (penalty < 0)


async def test_dapo_routes_by_source_and_logs_nothing_unless_asked(make_engine):
    engine = await make_engine(reward=dapo())

    outcome = await engine.score(
        request(
            data_source="math_dapo",
            ground_truth="42",
            outputs=[Output(text="Answer: 42", response_ids=[1] * 8)],
        )
    )

    assert outcome.reward == 0.5
    assert outcome.extra["acc"] is True
    assert "overlong" not in outcome.extra


async def test_dapo_counts_tokens_of_a_text_and_says_when_it_cannot(make_engine, real_tokenizer):
    without = await make_engine(reward=dapo() | {"function": "misbehave_async"})
    with_one = await make_engine(
        reward=dapo() | {"function": "misbehave_async", "tokenizer": real_tokenizer}
    )

    refused = await without.score(request("some text"))
    scored = await with_one.score(request("word " * 50))

    assert refused.kind is Kind.BAD_INPUT
    assert "response_ids" in refused.message
    assert scored.reward == -0.5


async def test_gdpo_reports_every_reward_as_a_number(make_engine):
    engine = await make_engine(
        reward=parts("correct", "form") | {"manager": "gdpo"},
    )

    outcome = await engine.score(request("<think> 42", ground_truth="42"))

    assert outcome.reward == 2.0
    assert (outcome.extra["correct"], outcome.extra["form"]) == (1.0, 1.0)


async def test_gdpo_fails_a_row_without_one_of_its_rewards(make_engine):
    engine = await make_engine(reward=parts("form", "skips") | {"manager": "gdpo"})

    outcome = await engine.score(request("<think>"))

    assert outcome.kind is Kind.BAD_SCORE
    assert outcome.message.startswith("skips")


async def test_gdpo_takes_its_rewards_out_of_one_functions_dict(make_engine):
    keys = {"gdpo_reward_keys": ["correct", "format"], "experiment_name": "run 7"}
    engine = await make_engine(
        reward={"manager": "gdpo", "function": f"{PARTS}:several", "kwargs": keys}
    )

    outcome = await engine.score(request("x"))

    assert outcome.extra == {
        "score": 0.7,
        "correct": 1.0,
        "format": 0.4,
        "experiment": "run 7",
    }


async def test_remote_runs_every_function_in_another_process(make_engine):
    engine = await make_engine(reward={"manager": "remote", "function": "misbehave"})

    outcome = await engine.score(request("good"))

    assert outcome.extra["pid"] != os.getpid()


async def test_a_manager_written_for_verl_runs_unchanged(make_engine, real_tokenizer):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(real_tokenizer)
    engine = await make_engine(
        reward={
            "manager": f"{MANAGERS}:NaiveLikeManager",
            "function": f"{MANAGERS}:compute_score",
            "tokenizer": real_tokenizer,
            "kwargs": {"bonus": 0.25},
        }
    )
    texts = ["the answer is 42", "I do not know, friend"]

    outcomes = await asyncio.gather(
        *(
            engine.score(
                request(
                    data_source="mine",
                    ground_truth="42",
                    outputs=[
                        Output(
                            prompt_ids=[5, 6, 7][: 1 + at],
                            response_ids=tokenizer.encode(text, add_special_tokens=False),
                        )
                    ],
                )
            )
            for at, text in enumerate(texts)
        )
    )

    assert [outcome.reward for outcome in outcomes] == [1.25, 0.25]
    assert [outcome.extra["text"] for outcome in outcomes] == texts
    assert outcomes[0].extra["source"] == "mine"


async def test_a_verl_manager_without_a_function_uses_the_built_in_ones(
    make_engine, real_tokenizer
):
    engine = await make_engine(
        reward={"manager": f"{MANAGERS}:NaiveLikeManager", "tokenizer": real_tokenizer}
    )

    outcome = await engine.score(
        request("so #### 42", data_source="openai/gsm8k", ground_truth="42")
    )

    assert outcome.reward == 1.0, outcome.message


async def test_a_verl_manager_may_reward_all_outputs_jointly(make_engine):
    engine = await make_engine(reward={"manager": f"{MANAGERS}:JointManager"})
    outputs = [
        Output(prompt_ids=[1] * 60, response_ids=[2, 2], response_mask=[1, 1], text="a"),
        Output(prompt_ids=[1, 1, 1], response_ids=[2] * 5, response_mask=[1, 1, 0, 0, 1], text="b"),
        Output(prompt_ids=[1, 1, 1], response_ids=[], text=""),
    ]

    outcome = await engine.score(request(outputs=outputs))

    assert outcome.extra["lengths"] == [2, 3, 0]
    assert outcome.reward == 5.0


async def test_the_older_callable_kind_of_manager_runs_too(make_engine):
    engine = await make_engine(reward={"manager": f"{MANAGERS}:OlderManager"})
    outputs = [Output(response_ids=[2, 2], text="a"), Output(response_ids=[2] * 5, text="b")]

    outcome = await engine.score(request(data_source="mine", outputs=outputs))

    assert outcome.reward == 0.5
    assert outcome.extra == {"source": "mine"}


@pytest.mark.parametrize(
    ("manager", "kind", "says"),
    [("HangingManager", Kind.TIMEOUT, "0.5 s"), ("WrongManager", Kind.BAD_SCORE, "reward_score")],
)
async def test_a_manager_that_fails_costs_its_row(make_engine, manager, kind, says):
    engine = await make_engine(reward={"manager": f"{MANAGERS}:{manager}", "timeout_s": 0.5})

    outcome = await engine.score(request("x"))

    assert outcome.kind is kind
    assert says in outcome.message


@pytest.mark.parametrize(
    ("manager", "says"),
    [
        (f"{MANAGERS}:PickyManager", "config.reward.window is missing"),
        (f"{MANAGERS}:compute_score", "no class"),
        (f"{MANAGERS}:Missing", "Missing"),
    ],
)
async def test_a_manager_that_cannot_be_built_ends_the_start(make_engine, manager, says):
    with pytest.raises(SettingsError, match=says):
        await make_engine(reward={"manager": manager})
