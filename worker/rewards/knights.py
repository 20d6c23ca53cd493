"""Knights and knaves: who is what, read from statements such as `Zoey is a knave`.

The last `<answer>` counts, or the whole response where it has no such tag. Everybody must be
named with the right role; whoever is called both is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from worker.rewards.errors import BadInput
from worker.rewards.inputs import answer_text, response_text
from worker.rewards.registry import shown
from worker.rewards.search_r1 import tagged

_ROLE = re.compile(r" is an? (knight|knave)\b", re.IGNORECASE)
_PERSON = re.compile(r"(?<![A-Za-z])[A-Za-z]{1,40}\Z")
_TEXTS = ("solution_text_format", "solution_text")


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Return `score` (1.0 if all roles are right, else 0.0) and `acc`, the share that is.

    `ground_truth` is a text, `{"solution_text_format": text}` or `{"Zoey": "knave", …}`.

    >>> compute_score("kk", "<answer>(1) Zoey is a knave</answer>", "Zoey is a knave")
    {'score': 1.0, 'acc': 1.0}
    """
    truth = _truth(ground_truth)
    response = response_text(solution_str)
    answer = tagged(response, "answer")
    said = _roles(response if answer is None else answer)
    right = sum(said.get(person) == roles for person, roles in truth.items())
    whole = right == len(truth) and said.keys() == truth.keys()
    return {"score": float(whole), "acc": right / len(truth)}


def _truth(ground_truth: Any) -> dict[str, set[str]]:
    if isinstance(ground_truth, Mapping):
        texts = [ground_truth[name] for name in _TEXTS if name in ground_truth]
        found = _roles(answer_text(texts[0])) if texts else _pairs(ground_truth)
    else:
        found = _roles(answer_text(ground_truth))
    if not found or any(len(roles) != 1 for roles in found.values()):
        raise BadInput(f"ground_truth: no knights and knaves in {shown(ground_truth)}")
    return found


def _pairs(people: Mapping[Any, Any]) -> dict[str, set[str]]:
    return _roles(". ".join(f"{person} is a {role}" for person, role in people.items()))


def _roles(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for role in _ROLE.finditer(text):
        person = _PERSON.search(text, max(0, role.start() - 41), role.start())
        if person is not None:
            found.setdefault(person.group().lower(), set()).add(role.group(1).lower())
    return found
