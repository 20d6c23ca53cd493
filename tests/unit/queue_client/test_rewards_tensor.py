"""Rewards stand on the last response token, and nowhere if there is none."""

from __future__ import annotations

import numpy as np
import pytest

from queue_client import Output, Trajectory, TrajectoryBatch
from queue_client.rewards_tensor import reward_tensor

BATCH = TrajectoryBatch.pad(
    [
        Trajectory([Output([1], [2, 3, 4], [1, 1, 0])]),
        Trajectory([Output([1], [2, 3]), Output([1, 2], [3], [1]), Output([1], [2, 3, 4, 5])]),
        Trajectory([Output([1], [2]), Output([1], [])]),
        Trajectory([]),
        Trajectory([Output([1], [2, 3], [0, 0])]),
    ]
)


def placed_at(values) -> dict[tuple[int, int], float]:
    return {(row, col): values[row, col].item() for row, col in zip(*values.nonzero(), strict=True)}


def test_a_reward_stands_on_the_last_response_token_of_the_last_output():
    values, placed = reward_tensor(BATCH, [1, 2, 3, 4, 5])
    assert (values.shape, values.dtype) == ((7, 4), np.float32)
    assert placed_at(values) == {(0, 2): 1, (3, 3): 2, (6, 1): 5}
    assert placed.tolist() == [True, True, False, False, True]


def test_every_output_can_carry_the_reward():
    values, _ = reward_tensor(BATCH, [1, 2, 3, 4, 5], spread="every")
    assert placed_at(values) == {(0, 2): 1, (1, 1): 2, (2, 0): 2, (3, 3): 2, (4, 0): 3, (6, 1): 5}


def test_a_reward_can_stand_on_the_last_sampled_token():
    values, placed = reward_tensor(BATCH, [1, 2, 3, 4, 5], on="policy")
    assert placed_at(values) == {(0, 1): 1, (3, 3): 2}
    assert placed.tolist() == [True, True, False, False, False]


def test_a_trajectory_without_a_reward_stays_at_zero():
    values, placed = reward_tensor(BATCH, [None, float("nan"), 0, 0, 0])
    assert np.isnan(values[3, 3])
    assert not values[0].any()
    assert not placed[0]


def test_a_batch_without_tokens_has_no_column():
    values, placed = reward_tensor(TrajectoryBatch.pad([Trajectory([Output(text="x")])]), [1.0])
    assert values.shape == (1, 0)
    assert placed.tolist() == [False]


@pytest.mark.parametrize("options", [{"spread": "all"}, {"on": "token"}])
def test_unknown_choices_are_refused(options):
    with pytest.raises(ValueError, match="unknown"):
        reward_tensor(BATCH, [0] * 5, **options)


def test_there_must_be_a_reward_for_each_trajectory():
    with pytest.raises(ValueError, match="4 rewards for 5 trajectories"):
        reward_tensor(BATCH, [0] * 4)
