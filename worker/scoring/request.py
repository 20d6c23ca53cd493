"""What the pool asks of scoring: one trajectory, and how long it may take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from queue_client.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One trajectory to score.

    `deadline` is on the clock of `time.monotonic()`; past it the row ends as `timeout`.
    `queued_s` is the time it waited before, `attempt` the starts so far, this one included.
    """

    trajectory: Trajectory
    deadline: float = math.inf
    queued_s: float = 0.0
    attempt: int = 1
