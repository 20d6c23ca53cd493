"""Token F1: how many words of the answer and of the reference are the same, as SQuAD counts them.

The answer is the last `<answer>` of the response, or the whole response where it has no such tag.
Answers of one word that settle a question (yes, no, noanswer) must be equal, as in HotpotQA.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from worker.rewards.inputs import response_text
from worker.rewards.search_r1 import normalise, tagged, wanted

_SETTLING = frozenset({"yes", "no", "noanswer"})


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Return the best F1 over the accepted answers, with its precision and recall.

    >>> compute_score(None, "<answer>the red fox</answer>", "a fox")["score"]
    0.6666666666666666
    """
    references = wanted(ground_truth)
    response = response_text(solution_str)
    answer = tagged(response, "answer")
    spoken = normalise(response if answer is None else answer)
    best = max((_overlap(spoken, each) for each in references), key=lambda each: each[0])
    return dict(zip(("score", "precision", "recall"), best, strict=True))


def _overlap(spoken: str, reference: str) -> tuple[float, float, float]:
    if spoken != reference and (spoken in _SETTLING or reference in _SETTLING):
        return 0.0, 0.0, 0.0
    words, wanted = spoken.split(), reference.split()
    shared = sum((Counter(words) & Counter(wanted)).values())
    if not shared:
        return 0.0, 0.0, 0.0
    precision, recall = shared / len(words), shared / len(wanted)
    return 2 * precision * recall / (precision + recall), precision, recall
