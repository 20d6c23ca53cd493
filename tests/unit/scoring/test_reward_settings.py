"""The reward section: two names for one thing, conflicts, and what a source inherits."""

from __future__ import annotations

import pytest

from worker.scoring.routing import merged
from worker.settings import SettingsError, load_settings, settings_from


@pytest.mark.parametrize(
    ("theirs", "ours", "value"),
    [
        ("max_concurrency", "max_concurrent", 100),
        ("max_rpm", "rpm", 1000),
        ("max_tpm", "tpm", 100_000),
        ("estimated_tokens_per_request", "tokens", 2000),
        ("estimator", "tokens", "cost.py:estimate"),
        ("timeout", "timeout_s", 300),
        ("reward_kwargs", "kwargs", {"a": 1}),
    ],
)
def test_the_originals_name_of_a_setting_is_accepted_and_both_are_a_conflict(theirs, ours, value):
    assert getattr(settings_from({"reward": {theirs: value}}).reward, ours) == value
    with pytest.raises(SettingsError, match=f"{ours} and {theirs}"):
        settings_from({"reward": {theirs: value, ours: value}})


def test_a_misspelt_key_names_the_nearest_one():
    with pytest.raises(SettingsError, match="did you mean 'manager'"):
        settings_from({"reward": {"manger": "naive"}})
    with pytest.raises(SettingsError, match="did you mean 'weight'"):
        settings_from({"reward": {"functions": {"a": {"function": "x:y", "wieght": 2}}}})


def test_a_source_inherits_what_it_does_not_set():
    reward = settings_from(
        {
            "reward": {
                "manager": "rate_limited",
                "limit": "judge",
                "timeout_s": 60,
                "function": "a.py:f",
                "kwargs": {"style": "long"},
                "sources": {"openai/gsm8k": {"function": "builtin:gsm8k", "manager": "naive"}},
            },
            "limits": {"judge": {"rpm": 1}},
        }
    ).reward

    fields = merged(reward, reward.sources["openai/gsm8k"])

    assert (fields.manager, fields.function, fields.timeout_s) == ("naive", "builtin:gsm8k", 60)
    assert fields.kwargs == {}, "another function's arguments are not this one's"


def test_a_cost_from_the_environment_is_a_number():
    assert load_settings(environ={"REWARDPOOL_REWARD__TOKENS": "600"}).reward.tokens == 600


@pytest.mark.parametrize(
    ("reward", "names"),
    [
        ({"timeout_s": 0}, "timeout_s"),
        ({"retries": {"scorer": 1}}, "retries.scorer"),
        ({"tokens": -1}, "tokens"),
        ({"rpm": -5}, "rpm"),
        ({"reward_model": {"dialect": "tgi"}}, "dialect"),
    ],
)
def test_nonsense_is_refused_with_the_field(reward, names):
    with pytest.raises(SettingsError, match=names):
        settings_from({"reward": reward})
