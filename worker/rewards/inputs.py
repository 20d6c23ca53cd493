"""What built-in functions check of a row before they score it.

A row that cannot be scored is never a silent 0: the error names the field and the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from worker.rewards.errors import BadInput
from worker.rewards.registry import shown


def response_text(solution_str: object) -> str:
    """Return the response; raises BadInput if it is not text."""
    if isinstance(solution_str, str):
        return solution_str
    raise BadInput(f"solution_str: expected text, got {shown(solution_str)}")


def answer_text(ground_truth: object, *, field: str = "ground_truth") -> str:
    """Return a ground truth as text, numbers included; raises BadInput if it is missing or empty.

    >>> answer_text(42)
    '42'
    """
    if isinstance(ground_truth, bool) or not isinstance(ground_truth, str | int | float):
        raise BadInput(f"{field}: expected text or a number, got {shown(ground_truth)}")
    text = str(ground_truth).strip()
    if not text:
        raise BadInput(f"{field}: is empty, so nothing could ever match it")
    return text


def answer_texts(ground_truth: object, *, field: str = "ground_truth") -> list[str]:
    """Return all accepted answers: a text, a list of texts, or either under `target`.

    >>> answer_texts({"target": ["Paris", "paris"]})
    ['Paris', 'paris']
    """
    if isinstance(ground_truth, Mapping):
        if "target" not in ground_truth:
            raise BadInput(f"{field}.target: is missing; there are {shown(list(ground_truth))}")
        return answer_texts(ground_truth["target"], field=f"{field}.target")
    if isinstance(ground_truth, str) or not _is_list(ground_truth):
        return [answer_text(ground_truth, field=field)]
    answers: list[Any] = list(ground_truth)  # type: ignore[call-overload]
    if not answers:
        raise BadInput(f"{field}: is an empty list, so nothing could ever match it")
    return [answer_text(each, field=f"{field}[{row}]") for row, each in enumerate(answers)]


def _is_list(value: object) -> bool:
    # A column that went through numpy or Arrow arrives as an array, not as a list.
    return isinstance(value, Sequence) or (hasattr(value, "tolist") and hasattr(value, "__len__"))
