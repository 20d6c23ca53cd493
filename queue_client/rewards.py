"""From outcomes to numbers: what a row without a reward becomes is the caller's choice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

from queue_client.errors import RewardUnavailable
from queue_client.outcome import Outcome

OnFailure = Literal["fill", "nan", "mask", "raise"]


def rewards_of(
    outcomes: Iterable[Outcome], *, on_failure: OnFailure = "raise", fill: float = 0.0
) -> list[float] | tuple[list[float], list[bool]]:
    """Return a reward for each outcome, in order; with "mask" also which of them are real.

    "fill": rows without a reward get `fill`; "nan": NaN; "mask": `fill`, and False in the mask;
    "raise": RewardUnavailable, naming the failed rows. A row that the reward function skipped
    (scored, reward None) is no failure: under "raise" it is NaN, else as a failed one.
    """
    if on_failure not in get_args(OnFailure):
        choices = " | ".join(get_args(OnFailure))
        raise ValueError(f"on_failure: {choices} expected (got {on_failure!r})")
    rows = list(outcomes)
    failed = [(row, outcome) for row, outcome in enumerate(rows) if not outcome.ok]
    if on_failure == "raise" and failed:
        raise RewardUnavailable(
            [row for row, _ in failed], [str(outcome.kind) for _, outcome in failed]
        )
    missing = float(fill) if on_failure in ("fill", "mask") else math.nan
    mask = [outcome.ok and outcome.reward is not None for outcome in rows]
    rewards = [
        float(outcome.reward) if outcome.ok and outcome.reward is not None else missing
        for outcome in rows
    ]
    return (rewards, mask) if on_failure == "mask" else rewards
