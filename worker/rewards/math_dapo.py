r"""DAPO maths: +1 or -1 for the last `Answer:` line of the response, else for its last box.

Only the last 300 characters are read. Both sides are normalised after the rules of Minerva
(Lewkowycz et al. 2022, appendix D): right-hand side of an equation, units, dollar signs, text
wrappers, short fractions, thousands separators. No algebra: 0.5 is not 1/2 here.
"""

from __future__ import annotations

import re
from typing import Any

from worker.rewards.boxed import last_boxed
from worker.rewards.inputs import answer_text, response_text

TAIL_CHARS = 300
INVALID = "[INVALID]"
LONGEST_CHARS = 2_000

_ANSWER_LINE = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)
_UNITS = (
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals",
    "edges", "students", "multiples",
)  # fmt: skip
_UNIT = re.compile(rf"(?<![A-Za-z\\])(?:{'|'.join(_UNITS)})(?![A-Za-z])")
_ARTICLE = re.compile(r"(?<![A-Za-z])an? ")
_NOISE = (
    "\\$", "\\ ", "\\!", "\\;", "{,}", "^\\circ", "^{\\circ}", "\\mathrm{th}", "\\ldots", "\\dots",
    '"', "\\left", "\\right",
)  # fmt: skip
_WRAPPED = re.compile(r"\\(?:text|textbf|mbox|overline|mathrm)\{([^{}]*)\}")
_IN_DOLLARS = re.compile(r"\$([^$]*)\$")
_SHORT_ROOT = re.compile(r"\\?sqrt([^{\s\\\[])")
_SHORT_FRACTION = re.compile(r"\\?frac([^{\s\\])([^{\s\\])")


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
) -> dict[str, Any]:
    r"""Return `score` (+1.0 or -1.0), `acc` and `pred`, the answer as it was compared.

    >>> compute_score("math_dapo", "Thus\nAnswer: $1,000$", "1000")
    {'score': 1.0, 'acc': True, 'pred': '1000'}
    """
    truth = normalise(answer_text(ground_truth))
    found = stated_answer(response_text(solution_str)[-TAIL_CHARS:])
    answer = INVALID if found is None else normalise(found)
    is_right = found is not None and answer != "" and answer == truth
    return {"score": 1.0 if is_right else -1.0, "acc": is_right, "pred": answer}


def stated_answer(tail: str) -> str | None:
    """Return the last answer line; the last box only where there is no such line."""
    lines = _ANSWER_LINE.findall(tail)
    if lines:
        boxed = last_boxed(lines[-1])
        return boxed if boxed is not None else str(lines[-1])
    return last_boxed(tail)


def normalise(answer: str) -> str:
    r"""Return one spelling for answers that are written differently.

    >>> normalise(r"x = \text{42 dollars}")
    '42'
    """
    if len(answer) > LONGEST_CHARS:
        return answer.strip()
    text = answer.rpartition("=")[2]
    text = _ARTICLE.sub("", text).replace(".$", "$")
    for piece in _NOISE:
        text = text.replace(piece, "")
    text = text.replace("dfrac", "frac").replace("tfrac", "frac")
    text = _UNIT.sub("", _unwrapped(text))
    inside = _IN_DOLLARS.search(text)
    text = inside.group(1) if inside else text
    boxed = last_boxed(text)
    text = "".join((text if boxed is None else boxed).replace("$", "").split())
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    plain = text.replace(",", "")
    return plain if plain.isascii() and plain.isdigit() else text


def _unwrapped(text: str) -> str:
    # Wrappers may be nested; the bound keeps the work linear.
    for _ in range(8):
        text, count = _WRAPPED.subn(r"\1", text)
        if not count:
            break
    return text
