"""GSM8K: the number after the last `#### `, or flexibly the last number, compared as text.

Only the last 300 characters are read, as in verl: a model that goes on after its answer has not
finished. Digits are ASCII.
"""

from __future__ import annotations

import re
from typing import Any

from worker.rewards.inputs import answer_text, response_text

TAIL_CHARS = 300

_NUMBER = r"-?[0-9.,]+"
_MARKED = re.compile(rf"#### ({_NUMBER})")
_ANY = re.compile(_NUMBER)


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    score: float = 1.0,
    format_score: float = 0.0,
) -> float:
    """Score the number behind the last `#### `; thousands separators are dropped.

    A wrong number earns `format_score`, no number 0.

    >>> compute_score("openai/gsm8k", "6 * 7 = 42, so #### 42", "42")
    1.0
    """
    truth = answer_text(ground_truth).replace(",", "")
    found = _MARKED.findall(response_text(solution_str)[-TAIL_CHARS:])
    if not found:
        return 0.0
    return score if found[-1].replace(",", "") == truth else format_score


def compute_flexible_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    score: float = 1.0,
    format_score: float = 0.0,
) -> float:
    """Score the last number in the response, exactly as it is written.

    >>> compute_flexible_score(None, "the answer is 42", "42")
    1.0
    """
    truth = answer_text(ground_truth)
    found = [
        number
        for number in _ANY.findall(response_text(solution_str)[-TAIL_CHARS:])
        if number.strip("-.,")
    ]
    if not found:
        return 0.0
    return score if found[-1] == truth else format_score
