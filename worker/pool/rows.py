"""One row's outcome as the script that delivers it wants it: encoded, and what it counts as."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from queue_client import protocol
from queue_client.outcome import Kind, Outcome
from queue_client.wire import encode_outcome
from worker.pool.flight import Flight

MAX_SAID = 2_000  # characters of a message about an outcome that cannot travel
MAX_SOURCE = 64
MAX_COUNTED = 1e12


def _names(what: str, bounds: Sequence[float]) -> list[str]:
    return [f"{what}_le_{bound:g}" for bound in bounds] + [f"{what}_le_inf"]


_WAIT = _names("wait", protocol.TIME_BOUNDS_S)
_RUN = _names("run", protocol.TIME_BOUNDS_S)
_REWARD = _names("reward", protocol.REWARD_BOUNDS)


def encode_row(flight: Flight, row: int, outcome: Outcome) -> list[Any]:
    """One of the rows of `pool_deliver.lua`."""
    try:
        encoded = encode_outcome(outcome)
    except Exception as error:  # noqa: BLE001 - an outcome that cannot travel is a failed one
        said = f"the outcome cannot be sent: {type(error).__name__}: {error}"
        outcome = Outcome.failed(
            Kind.BAD_SCORE, said[:MAX_SAID], attempts=outcome.attempts, uid=outcome.uid
        )
        encoded = encode_outcome(outcome)
    trajectory = flight.trajectories[row] if row < len(flight.trajectories) else None
    source = _source(trajectory.data_source if trajectory else None)
    outputs = trajectory.outputs if trajectory else []
    tokens = sum(len(o.response_ids) for o in outputs if o.response_ids is not None)
    return [
        str(row),
        encoded,
        f"{source}|{outcome.kind.value if outcome.kind else 'scored'}",
        _buckets(outcome),
        _number(outcome.reward),
        int(_number(outcome.wait_s) * 1000),
        int(_number(outcome.run_s) * 1000),
        tokens,
    ]


def _number(value: float | None) -> float:
    """A number that sums can take: what is not finite, or no number, counts as nothing."""
    if value is None or not math.isfinite(value):
        return 0.0
    return max(-MAX_COUNTED, min(MAX_COUNTED, float(value)))


def _buckets(outcome: Outcome) -> list[str]:
    found = [
        _WAIT[bisect.bisect_left(protocol.TIME_BOUNDS_S, outcome.wait_s)],
        _RUN[bisect.bisect_left(protocol.TIME_BOUNDS_S, outcome.run_s)],
    ]
    if outcome.reward is not None:
        found.append(_REWARD[bisect.bisect_left(protocol.REWARD_BOUNDS, outcome.reward)])
    return found


def _source(name: object) -> str:
    text = "-" if name is None or name == "" else str(name)[:MAX_SOURCE].replace("|", "/")
    return text.encode("utf-8", "replace").decode()
