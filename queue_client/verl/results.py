"""An outcome as verl reads it: `reward_score`, and the same plain extra keys in every row.

verl builds one column for each key of row 0 and fails where a later row lacks it, so the keys
never depend on what a reward function returned. A column's type does not either: numpy's mean
over numbers and texts would fail in the trainer.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from typing import Any

from queue_client.errors import RewardUnavailable
from queue_client.outcome import Kind, Outcome
from queue_client.verl.options import OnFailure

logger = logging.getLogger(__name__)

#: Columns that every row has. `acc` is verl's name for what it validates by.
KEYS = (
    "acc",
    "score",
    "pred",
    "failed",
    "kind",
    "error",
    "timeout",
    "attempts",
    "wait_s",
    "run_s",
    "extra",
)
_SKIPPED = "the reward function returned no reward"
_told: set[str] = set()


class NoReward(RewardUnavailable):
    """A trajectory has no reward; the group it belongs to should be sampled again or dropped."""

    def __init__(self, label: str, outcome: Outcome) -> None:
        kind = "skipped" if outcome.kind is None else str(outcome.kind)
        super().__init__([0], [kind])
        self.label, self.outcome = label, outcome
        self.args = (f"{label}: {kind}: {outcome.message or _SKIPPED}",)

    def __reduce__(self) -> tuple[Any, ...]:
        return NoReward, (self.label, self.outcome)


def result_of(
    outcome: Outcome, *, on_failure: OnFailure, extra_keys: Sequence[str] = (), label: str = "row"
) -> dict[str, Any]:
    """Return `reward_score` and `reward_extra_info` of one trajectory.

    A row that the reward function skipped has no reward either. Raises NoReward if so chosen.
    """
    if outcome.reward is not None:
        reward = outcome.reward
    elif on_failure == "raise":
        raise NoReward(label, outcome)
    else:
        reward = 0.0 if on_failure == "zero" else math.nan
        logger.warning(
            "row without a reward filled row=%s kind=%s reward=%s message=%s",
            label, outcome.kind, reward, outcome.message or _SKIPPED,
        )  # fmt: skip
    return {"reward_score": reward, "reward_extra_info": extra_info(outcome, reward, extra_keys)}


def extra_info(outcome: Outcome, reward: float, extra_keys: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fixed columns of a row: numbers, None or texts."""
    said = outcome.extra
    missing = outcome.reward is None
    info: dict[str, Any] = {
        "acc": _number(said.get("acc"), reward),
        "score": _number(said.get("score"), reward),
        "pred": _text(said.get("pred")),
        "failed": missing,
        "kind": "skipped" if missing and outcome.ok else _text(outcome.kind),
        "error": (outcome.message or _SKIPPED) if missing else None,
        "timeout": outcome.kind is Kind.TIMEOUT,
        "attempts": outcome.attempts,
        "wait_s": outcome.wait_s,
        "run_s": outcome.run_s,
        "extra": as_json(said),
    }
    for key in extra_keys:
        info.setdefault(key, scalar(said.get(key)))
    _tell_of(said, info)
    return info


def scalar(value: Any) -> Any:
    """Return a number, None or a text as it is, anything else as JSON text."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    return as_json(value)


def as_json(value: Any) -> str:
    """Return JSON; NaN, which JSON lacks, is written as Python does."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _number(value: Any, otherwise: float) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    return float(otherwise)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, str | int | float) else as_json(value)


def _tell_of(said: dict[str, Any], info: dict[str, Any]) -> None:
    """Say once which of the function's fields have no column of their own."""
    if said.keys() <= info.keys() or said.keys() <= _told:
        return
    others = sorted(said.keys() - info.keys() - _told)
    _told.update(said)
    if others:
        logger.info(
            "reward fields are in extra alone, name them in extra_keys for columns fields=%s",
            ",".join(others),
        )
