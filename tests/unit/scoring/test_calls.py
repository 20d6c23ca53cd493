"""Which arguments a reward function gets."""

from __future__ import annotations

import functools

import pytest

from queue_client import Output, Trajectory
from worker.rewards.errors import BadInput
from worker.scoring.calls import plan
from worker.scoring.results import BadScore
from worker.scoring.rows import Row
from worker.settings import SettingsError


def row(**fields) -> Row:
    given = {
        "outputs": [Output(text="draft"), Output(text="final", response_ids=[7, 8])],
        "data_source": "s",
        "ground_truth": "42",
        "extra_info": {"level": 3},
        "messages": [{"role": "user", "content": "6 x 7?"}],
    }
    return Row(Trajectory(**{**given, **fields}))


def called(function, the_row=None, **kwargs):
    made = plan(function, kwargs, spec="f")
    return made.result(function(**made.arguments(the_row or row())))


def test_a_function_gets_verls_four_arguments_of_the_last_output():
    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        return {"score": 1, "seen": [data_source, solution_str, ground_truth, extra_info["level"]]}

    assert called(compute_score)["seen"] == ["s", "final", "42", 3]


def test_a_function_gets_only_what_it_names():
    assert called(lambda solution_str: solution_str) == "final"
    assert called(lambda ground_truth, solution_str="": ground_truth) == "42"


def test_a_function_with_open_keywords_gets_verls_arguments_and_no_others():
    assert sorted(called(lambda **given: given)) == [
        "data_source",
        "extra_info",
        "ground_truth",
        "solution_str",
    ]
    assert sorted(called(lambda solution_str, **rest: rest)) == [
        "data_source",
        "extra_info",
        "ground_truth",
    ]


def test_partials_methods_and_callable_objects_are_read_like_functions():
    class Scorer:
        def __call__(self, solution_str, factor):
            return len(solution_str) * factor

        def method(self, solution_str):
            return len(solution_str)

    assert called(functools.partial(Scorer(), factor=2)) == 10
    assert called(Scorer().method) == 5
    assert called(Scorer(), factor=3) == 15


def test_configured_arguments_win_over_a_rows_own():
    def score(solution_str, ground_truth):
        return ground_truth

    assert called(score, ground_truth="fixed") == "fixed"


def test_a_function_that_names_outputs_gets_all_of_them_with_their_text():
    texts = called(lambda outputs: [output.text for output in outputs])

    assert texts == ["draft", "final"]


def test_a_batched_function_of_verl_gets_lists_of_one():
    def batched(data_sources, solution_strs, ground_truths, extra_infos):
        return [float(len(solution_strs[0]))]

    assert called(batched) == 5.0


def test_a_function_of_trl_gets_conversations_and_columns():
    def rewards(prompts, completions, level, **columns):
        assert prompts == [[{"role": "user", "content": "6 x 7?"}]]
        assert completions == [[{"role": "assistant", "content": "final"}]]
        return [float(level[0])]

    assert called(rewards) == 3.0


def test_a_function_of_openrlhf_gets_the_query_with_its_response():
    def reward_func(queries, prompts, labels):
        return {"rewards": [float(queries[0].endswith("?final"))], "extra_logs": {"n": [2]}}

    assert called(reward_func) == {"score": 1.0, "n": 2}


def test_a_missing_column_is_the_rows_fault_and_is_named():
    def rewards(completions, answer_key):
        return [0.0]

    with pytest.raises(BadInput, match="answer_key"):
        plan(rewards, {}, spec="f").arguments(row())


def test_a_list_of_the_wrong_length_is_never_cut_short():
    made = plan(lambda completions: [], {}, spec="f")

    with pytest.raises(BadScore, match="2 rewards for 1 row"):
        made.result([1.0, 2.0])


@pytest.mark.parametrize(
    ("function", "kwargs", "names"),
    [
        (lambda text: 1, {}, "text"),
        (lambda solution_str, weight: 1, {}, "weight"),
        (lambda solution_str: 1, {"weigth": 1}, "weigth"),
        (lambda solution_str, weight=1: 1, {"weigth": 1}, "did you mean 'weight'"),
        (lambda solution_str, x, /: 1, {}, "positional"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_with_the_argument(function, kwargs, names):
    with pytest.raises(SettingsError, match=names):
        plan(function, kwargs, spec="f")


def test_what_a_function_does_to_extra_info_stays_with_it():
    shared = {"nested": {"list": [1]}}
    the_row = row(extra_info=shared)

    def spoil(solution_str, extra_info):
        extra_info["nested"]["list"].append(2)
        extra_info["num_turns"] = 99
        return 0

    called(spoil, the_row)

    assert shared == {"nested": {"list": [1]}}
    assert called(lambda solution_str, extra_info: extra_info, the_row)["nested"] == {"list": [1]}


def test_extra_info_carries_what_verl_adds():
    the_row = row(
        num_turns=3,
        turn_scores=[0.5],
        tool_rewards=[1.0],
        extra_fields={"tool_extra_fields": {"calls": 2}, "reward_scores": {"a": 1}},
    )

    info = the_row.extra_info()

    assert info["num_turns"] == 3
    assert info["turn_scores"] == [0.5]
    assert info["tool_rewards"] == [1.0]
    assert info["calls"] == 2
    assert info["rollout_reward_scores"] == {"a": 1}
    assert row().extra_info()["rollout_reward_scores"] == {}
