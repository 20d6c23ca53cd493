"""Failed rows become numbers as the caller chooses."""

from __future__ import annotations

import math

import pytest

from queue_client import Kind, Outcome, RewardClient, RewardUnavailable
from queue_client.rewards import rewards_of

GROUP = [
    Outcome.scored(1.0),
    Outcome.failed(Kind.TIMEOUT, "too slow"),
    Outcome.scored(0.5),
    Outcome.failed(Kind.SCORER_ERROR, "raised"),
    Outcome.scored(None),
    Outcome.scored(0),
]


def test_fill_puts_the_chosen_value():
    assert rewards_of(GROUP, on_failure="fill", fill=-1) == [1.0, -1.0, 0.5, -1.0, -1.0, 0.0]
    assert rewards_of(GROUP, on_failure="fill") == [1.0, 0.0, 0.5, 0.0, 0.0, 0.0]


def test_mask_tells_the_real_rewards():
    rewards, mask = rewards_of(GROUP, on_failure="mask")
    assert mask == [True, False, True, False, False, True]
    kept = [reward for reward, real in zip(rewards, mask, strict=True) if real]
    assert sum(kept) / len(kept) == 0.5


def test_nan_is_nan_where_there_is_no_reward():
    rewards = rewards_of(GROUP, on_failure="nan")
    assert [math.isnan(reward) for reward in rewards] == [False, True, False, True, True, False]


def test_raise_names_the_rows_and_why():
    with pytest.raises(RewardUnavailable, match=r"2 rows have no reward: 1 \(timeout\)") as caught:
        rewards_of(GROUP)
    assert (caught.value.rows, caught.value.kinds) == ([1, 3], ["timeout", "scorer_error"])


def test_a_skipped_row_is_no_failure():
    rewards = rewards_of([Outcome.scored(None), Outcome.scored(2)])
    assert math.isnan(rewards[0])
    assert rewards[1] == 2.0


def test_rewards_are_plain_floats():
    assert {type(reward) for reward in rewards_of(GROUP, on_failure="fill", fill=-1)} == {float}


def test_an_unknown_choice_is_refused():
    with pytest.raises(ValueError, match=r"on_failure: fill \| nan \| mask \| raise"):
        rewards_of([], on_failure="zero")  # type: ignore[call-overload]


def test_the_client_offers_the_same():
    client = RewardClient("redis://localhost:1/0")
    assert client.rewards(GROUP, on_failure="mask") == rewards_of(GROUP, on_failure="mask")
