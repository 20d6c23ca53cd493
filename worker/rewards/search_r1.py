"""Search-R1: the last `<answer>` of the response against the accepted answers, by words.

Case, ASCII punctuation, English articles and spacing do not count; accents do. A response with
more than ten opening or closing tags earns a quarter of an exact match: it is guessing.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any

from worker.rewards.errors import BadInput
from worker.rewards.inputs import answer_texts, response_text
from worker.rewards.registry import shown

MOST_TAGS = 10
TOO_MANY_TAGS_SHARE = 0.25

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    score: float = 1.0,
    format_score: float = 0.0,
) -> float:
    """Score an answer that equals one of the accepted ones (`{"target": …}`, list or text).

    >>> compute_score("searchR1_nq", "<answer>The Eiffel tower.</answer>", ["Eiffel Tower"])
    1.0
    """
    response = response_text(solution_str)
    tags = max(response.count("<answer>"), response.count("</answer>"))
    worth = score * (TOO_MANY_TAGS_SHARE if tags > MOST_TAGS else 1.0)
    return _score(tagged(response, "answer"), ground_truth, str.__eq__, worth, format_score)


def compute_substring_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    score: float = 1.0,
    format_score: float = 0.0,
    max_words: int | None = None,
) -> float:
    """Score an answer that contains an accepted one; `max_words` stops lists of guesses."""
    answer = tagged(response_text(solution_str), "answer")
    if max_words is not None and answer is not None and len(answer.split()) > max_words:
        wanted(ground_truth)  # a row without an answer to match is still refused
        return format_score
    return _score(answer, ground_truth, str.__contains__, score, format_score)


def _score(
    answer: str | None,
    ground_truth: Any,
    matches: Callable[[str, str], bool],
    score: float,
    format_score: float,
) -> float:
    targets = wanted(ground_truth)
    if answer is None:
        return 0.0
    spoken = normalise(answer)
    return score if any(matches(spoken, target) for target in targets) else format_score


def wanted(ground_truth: Any) -> list[str]:
    """Return the accepted answers as words; raises BadInput if none has any."""
    targets = [normalise(target) for target in answer_texts(ground_truth)]
    if not any(targets):
        # Nothing but articles and punctuation: equal to an empty answer, part of every other one.
        raise BadInput(f"ground_truth: {shown(ground_truth)} has no words to compare")
    return [target for target in targets if target]


def tagged(text: str, tag: str) -> str | None:
    """Return what stands in the last closed `<tag>…</tag>`, or None.

    An element ends at the first closing tag after its opening one, and the next begins after it.

    >>> tagged("<answer>1</answer> <answer>2</answer> </answer>", "answer")
    '2'
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    found, at = None, 0
    while (start := text.find(opening, at)) >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        found, at = (start, end), end + len(closing)
    return None if found is None else text[found[0] : found[1]].strip()


def normalise(text: str) -> str:
    """Return the words in lower case, without ASCII punctuation and articles.

    >>> normalise("The Beatles, an   English band")
    'beatles english band'
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())
