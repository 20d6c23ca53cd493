r"""MATH: the last `\boxed{…}`, compared as text after both sides are brought to one spelling.

The rules are those of the data set's own evaluation (Hendrycks et al. 2021): spacing, degree,
percent and currency signs, units, `\dfrac`, `\frac12`, `1/2`, `0.5`, `x=`. No algebra: where the
answer may take another form, use `builtin:math_verify`.
"""

from __future__ import annotations

import re
from typing import Any

from worker.rewards.boxed import last_boxed
from worker.rewards.inputs import answer_text, response_text

#: A longer answer is compared as it is: no rule below is meant for it.
LONGEST_CHARS = 2_000

_DROPPED = ("\n", "\\!", "\\left", "\\right", "^{\\circ}", "^\\circ", "\\$", "\\%", "%")
_BARE_POINT = re.compile(r"(^|[ {])\.(?=[0-9])")
_SHORT_ROOT = re.compile(r"\\sqrt\s*([^\s{\[\\])")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\{[^{}]*\}|[^\s{}\\])\s*(\{|[^\s{}\\])")
_PLAIN_FRACTION = re.compile(r"(-?[0-9]+)/(-?[0-9]+)")
_UNIT = "\\text{ "


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
) -> float:
    r"""Return 1.0 if the last box holds the ground truth, up to spelling, else 0.0.

    >>> compute_score("lighteval/MATH", r"so \boxed{1/2}", r"\frac12")
    1.0
    """
    truth = answer_text(ground_truth)
    answer = last_boxed(response_text(solution_str))
    return float(answer is not None and are_same(answer, truth))


def are_same(answer: str, truth: str) -> bool:
    """Whether two answers are one after normalising; an empty answer is never right."""
    if not answer.strip():
        return False
    if answer.strip() == truth:
        return True
    spelled = normalise(answer)
    return spelled != "" and spelled == normalise(truth)


def normalise(answer: str) -> str:
    r"""Return one spelling for answers that are written differently.

    >>> normalise(r"x = \dfrac 12")
    '\\frac{1}{2}'
    """
    if len(answer) > LONGEST_CHARS:
        return answer.strip()
    text = answer.replace("tfrac", "frac").replace("dfrac", "frac").replace("\\\\", "\\")
    for piece in _DROPPED:
        text = text.replace(piece, "")
    text = _without_unit(text)
    text = _BARE_POINT.sub(r"\g<1>0.", text)
    text = _right_of_short_left(text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    text = "".join(_SHORT_FRACTION.sub(_full_fraction, text).split())
    if text == "0.5":
        return "\\frac{1}{2}"
    plain = _PLAIN_FRACTION.fullmatch(text)
    return f"\\frac{{{plain.group(1)}}}{{{plain.group(2)}}}" if plain else text


def _without_unit(text: str) -> str:
    return text.split(_UNIT)[0] if text.count(_UNIT) == 1 else text


def _right_of_short_left(text: str) -> str:
    left, _, right = text.partition("=")
    return right.strip() if right and "=" not in right and len(left.strip()) <= 2 else text


def _full_fraction(match: re.Match[str]) -> str:
    above, below = match.groups()
    above = above if above.startswith("{") else f"{{{above}}}"
    return f"\\frac{above}" + (below if below == "{" else f"{{{below}}}")
