"""Rewards back into a token-level tensor, as a trainer adds them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from queue_client.batch import TrajectoryBatch

Spread = Literal["last", "every"]
On = Literal["response", "policy"]


def reward_tensor(
    batch: TrajectoryBatch,
    rewards: Sequence[float | None] | NDArray[np.floating],
    *,
    spread: Spread = "last",
    on: On = "response",
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return token-level rewards, float32 [B, R], and which trajectories found a token, bool [T].

    A trajectory's reward stands on the last response token of its last output, or of `every`
    output; `on="policy"` takes the last token that the policy sampled instead of tool text.
    A row without such a token stays 0, and its trajectory is False in the second array: a reward
    is never written to the last column of an empty row. None leaves a trajectory at 0 as well.
    Raises ValueError if there is not one reward for each trajectory.
    """
    if len(rewards) != len(batch.trajectories):
        raise ValueError(f"{len(rewards)} rewards for {len(batch.trajectories)} trajectories")
    if spread not in ("last", "every") or on not in ("response", "policy"):
        raise ValueError(f"spread {spread!r} or on {on!r} is unknown")
    values = np.zeros((len(batch), batch.padding.response_width), np.float32)
    placed = np.zeros(len(batch.trajectories), np.bool_)
    ends = last_tokens(batch, on=on)
    row = 0
    for place, trajectory in enumerate(batch.trajectories):
        rows = range(row, row + len(trajectory.outputs))
        row = rows.stop
        reward = rewards[place]
        if reward is None or not rows:
            continue
        for each in rows if spread == "every" else rows[-1:]:
            if ends[each] >= 0:
                values[each, ends[each]] = reward
        placed[place] = ends[rows[-1]] >= 0
    return values, placed


def last_tokens(batch: TrajectoryBatch, *, on: On = "response") -> NDArray[np.int64]:
    """Return the column of each row's last token, int64 [B]; -1 where there is none."""
    ends = batch.response_lens - 1
    if on == "policy":
        for place, row in enumerate(batch.rows):
            if row.mask is not None:
                sampled = np.flatnonzero(row.mask)
                ends[place] = sampled[-1] if len(sampled) else -1
    return ends
