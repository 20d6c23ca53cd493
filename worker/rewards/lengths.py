"""Rewards for length: DAPO's soft penalty for overlong responses, and a cosine between bounds.

`unit` is what is counted: `tokens` of the last output, tool tokens included, or `characters` of
its text. A row without token ids is refused rather than counted in something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from worker.rewards.errors import BadInput
from worker.rewards.inputs import response_text
from worker.rewards.registry import builtin, route

Unit = Literal["tokens", "characters"]


def compute_overlong_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: dict[str, Any] | None = None,
    *,
    outputs: Sequence[Any] | None = None,
    max_length: int,
    buffer: int,
    penalty_factor: float = 1.0,
    unit: Unit = "tokens",
) -> dict[str, Any]:
    """Return `score` from 0 down to `-penalty_factor`, `length` and `overlong`.

    Up to `max_length - buffer` there is no penalty, then it grows evenly, and from `max_length` on
    it stays. Where a response is cut off at `max_length`, that is all there is to lose.

    >>> compute_overlong_score(None, "x" * 95, max_length=100, buffer=10, unit="characters")
    {'score': -0.5, 'length': 95, 'overlong': True}
    """
    if not 0 < buffer <= max_length:
        raise ValueError(f"buffer: must be above 0 and at most max_length, got {buffer!r}")
    length = length_of(solution_str, outputs, unit)
    over = length - (max_length - buffer)
    penalty = -min(max(over / buffer, 0.0), 1.0) * penalty_factor
    return {"score": penalty or 0.0, "length": length, "overlong": over > 0}


def compute_cosine_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    outputs: Sequence[Any] | None = None,
    max_length: int,
    correct: str | None = None,
    unit: Unit = "tokens",
    right_short: float = 1.0,
    right_long: float = 0.5,
    wrong_short: float = -1.0,
    wrong_long: float = -0.5,
) -> dict[str, Any]:
    """Return `score`, `acc` and `length`: a right answer loses by length, a wrong one gains.

    From `…_short` at length 0 to `…_long` at `max_length` and beyond, along half a cosine. Right is
    what the built-in `correct` (default: the one for the row's data source) calls right.

    >>> found = compute_cosine_score(
    ...     "openai/gsm8k", "#### 4", "4", max_length=12, unit="characters", right_long=0.0
    ... )
    >>> round(found["score"], 6), found["acc"]
    (0.5, True)
    """
    if max_length <= 0:
        raise ValueError(f"max_length: must be above 0, got {max_length!r}")
    is_right = _is_right(correct, data_source, solution_str, ground_truth, extra_info)
    short, long = (right_short, right_long) if is_right else (wrong_short, wrong_long)
    length = length_of(solution_str, outputs, unit)
    share = (1.0 + math.cos(math.pi * min(length / max_length, 1.0))) / 2.0
    return {"score": long + (short - long) * share, "acc": is_right, "length": length}


def _is_right(correct: str | None, data_source: str | None, *row: Any) -> bool:
    chosen = route(data_source) if correct is None else builtin(correct)
    if chosen.executor == "async" or chosen.name == "cosine_length":
        raise ValueError(f"correct: {chosen.name!r} cannot say whether an answer is right")
    found = chosen.load()(data_source, *row)
    if isinstance(found, Mapping):
        return bool(found["acc"] if "acc" in found else found["score"] >= 1.0)
    return bool(found >= 1.0)


def length_of(solution_str: str, outputs: Sequence[Any] | None, unit: Unit) -> int:
    """Return the length of the response in tokens or characters."""
    if unit == "characters":
        return len(response_text(solution_str))
    if unit != "tokens":
        raise ValueError(f"unit: must be tokens or characters, got {unit!r}")
    ids = outputs[-1].response_ids if outputs else None
    if ids is None:
        raise BadInput("outputs[-1].response_ids: needed to count tokens; or unit = 'characters'")
    return len(ids)
