r"""Multiple choice: the letter that the response states as its answer.

Read in this order, the last of its kind: `<answer>B</answer>`, `\boxed{B}`, `Answer: B` or
`answer is (B)`, or a response that is a letter and nothing else. A letter somewhere in the text is
no answer, and neither are several letters.
"""

from __future__ import annotations

import re
from typing import Any

from worker.rewards.boxed import last_boxed
from worker.rewards.errors import BadInput
from worker.rewards.inputs import answer_text, response_text
from worker.rewards.registry import shown
from worker.rewards.search_r1 import tagged

LETTERS = "ABCDEFGHIJ"

_STATED = re.compile(
    r"\b(?:answer|choice|option)(?: is|:| is:)[ \t]*(?:\*\*|\$)?[ \t]*([^\n]{0,40})", re.IGNORECASE
)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}")
_ONE_LETTER = re.compile(r"[(\[]?([A-Za-z])(?:[)\].:](?:\s.*)?|\s*)", re.DOTALL)
_OTHER_LETTER = re.compile(r"\b(?:or|and)\s+[(\[]?[A-Z]\b|,\s*[(\[]?[A-Z]\b|/\s*[A-Z]\b")


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    letters: str = LETTERS,
) -> dict[str, Any]:
    r"""Return `score` (1.0 or 0.0) and `pred`, the letter that was found ("" for none).

    >>> compute_score(None, r"so it is \boxed{\text{(B)}}", "b")
    {'score': 1.0, 'pred': 'B'}
    """
    letters = letters.upper()
    truth = letter_of(answer_text(ground_truth), letters)
    if not truth:
        raise BadInput(f"ground_truth: {shown(ground_truth)} is none of the letters {letters}")
    found = stated_letter(response_text(solution_str), letters)
    return {"score": float(found == truth), "pred": found}


def stated_letter(response: str, letters: str = LETTERS) -> str:
    """Return the letter that a response states, "" if it states none or several."""
    for statement in (tagged(response, "answer"), last_boxed(response)):
        if statement is not None:
            return letter_of(statement, letters)
    stated = _STATED.findall(response)
    return letter_of(stated[-1] if stated else response, letters)


def letter_of(statement: str, letters: str = LETTERS) -> str:
    """Return the one letter of a statement such as `(B)`, `B. Paris` or `b`, else ""."""
    if len(statement) > 2_000:
        return ""
    text = _TEXT.sub(r"\1", statement).replace("*", "").replace("$", "").strip()
    found = _ONE_LETTER.fullmatch(text)
    if found is None or _OTHER_LETTER.search(text):
        return ""
    letter = found.group(1).upper()
    return letter if letter in letters else ""
