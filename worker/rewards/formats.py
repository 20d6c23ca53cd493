"""Rewards for form alone: thinking tags, and how many of the expected tags are there.

Neither looks at the answer, so give them a small weight beside a reward that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worker.rewards.inputs import response_text


def compute_think_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: dict[str, Any] | None = None,
    *,
    tag: str = "think",
    answer_tag: str | None = None,
) -> float:
    """Return 1.0 if the response is one `<think>…</think>` and then something else, else 0.0.

    Neither thought nor answer may be blank, and no tag may come twice. With `answer_tag`, all that
    follows must be one `<answer>…</answer>`.

    >>> compute_think_score(None, "<think>2 + 2</think> 4")
    1.0
    """
    rest = _after(response_text(solution_str), tag)
    if rest is None or not rest.strip():
        return 0.0
    if answer_tag is None:
        return 1.0
    after = _after(rest.lstrip(), answer_tag)
    return float(after is not None and not after.strip())


def _after(text: str, tag: str) -> str | None:
    """What follows the one element that the text begins with; None if there is no such element."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if not text.startswith(opening) or text.count(opening) != 1 or text.count(closing) != 1:
        return None
    inside, _, rest = text[len(opening) :].partition(closing)
    return rest if inside.strip() else None


def compute_tag_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: dict[str, Any] | None = None,
    *,
    tags: Sequence[str] = ("think", "answer"),
) -> float:
    """Return the share of opening and closing tags that stand exactly once.

    >>> compute_tag_score(None, "<think>2 + 2</think> <answer>4")
    0.75
    """
    response = response_text(solution_str)
    if isinstance(tags, str) or not tags:
        raise ValueError(f"tags: expected a list of names, got {tags!r}")
    expected = [form.format(tag) for tag in tags for form in ("<{}>", "</{}>")]
    return sum(response.count(each) == 1 for each in expected) / len(expected)
