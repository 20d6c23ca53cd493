r"""Geometry3K: 0.9 for the right answer in the last box, 0.1 for thinking in tags before it.

The answer is compared by math-verify, so this belongs in a killable process, as the registry says.
"""

from __future__ import annotations

from typing import Any

from worker.rewards.boxed import last_boxed
from worker.rewards.inputs import answer_texts, response_text
from worker.rewards.math_verifier import (
    LONGEST_CHARS,
    are_equal,
    parse_response,
    parse_truth,
    prepare,
)

__all__ = ["compute_score", "prepare", "thinks_before_box"]

FORMAT_SHARE = 0.1


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    format_score: float = FORMAT_SHARE,
) -> dict[str, Any]:
    r"""Return `score` with its parts `acc` and `format`, each 1.0 or 0.0, and `pred`.

    >>> compute_score(None, r"<think>90 - 60</think> so \boxed{30}", "30")["score"]
    1.0
    """
    response = response_text(solution_str)
    truths = [parse_truth(truth) for truth in answer_texts(ground_truth)]
    answer = last_boxed(response)
    is_right = False
    if answer is not None and len(answer) <= LONGEST_CHARS:
        parsed = parse_response(f"\\boxed{{{answer}}}")
        is_right = any(are_equal(truth, parsed) for truth in truths)
    accuracy, form = float(is_right), float(thinks_before_box(response))
    return {
        "score": (1.0 - format_score) * accuracy + format_score * form,
        "acc": accuracy,
        "format": form,
        "pred": (answer or "")[:200],
    }


def thinks_before_box(response: str) -> bool:
    r"""Whether it begins with `<think>`, closes it, and then gives a closed `\boxed{…}`."""
    if not response.startswith("<think>"):
        return False
    thought = response.find("</think>")
    box = response.find("\\boxed{", thought) if thought >= 0 else -1
    return box >= 0 and response.find("}", box) >= 0
