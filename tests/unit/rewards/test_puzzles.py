"""Puzzles: equations are parsed and not evaluated, roles are read and not guessed."""

from __future__ import annotations

from typing import Any

import pytest

from worker.rewards import countdown, knights
from worker.rewards.errors import BadInput

TASK = {"target": 24, "numbers": [8, 2, 4]}
TRUTH = "(1) Zoey is a knave (2) Ada is a knight"


@pytest.mark.parametrize(
    ("equation", "reward"),
    [
        ("(8 - 2) * 4", 1),
        ("4×(8−2)", 1),
        ("(8 - 2) * (4)", 1),
        ("-(2 - 8) * 4", 1),
        ("8 + 2 + 4", 0.1),
        ("24", 0.1),
        ("(8 - 2) * 4 * 1", 0.1),
        ("8 / (2 - 2) * 4", 0.1),
        ("(8 - 2) * 4 = 24", 0),
        ("8 ** 2 ** 4", 0),
        ("9 ** 9 ** 9 ** 9", 0),
        ("1e999", 0),
        ("True", 0),
        ("__import__('os')", 0),
        ("(" * 200, 0),
        ("8" * 301, 0),
        ("\0", 0),
        ("", 0),
    ],
)
def test_an_equation_uses_each_number_once(equation: str, reward: float) -> None:
    assert countdown.compute_score("countdown", f"<answer>{equation}</answer>", TASK) == reward


def test_an_equation_outside_the_tag_is_none() -> None:
    assert countdown.compute_score("countdown", "(8 - 2) * 4", TASK) == 0.0


@pytest.mark.parametrize(
    "truth",
    [None, 24, {"target": 24}, {"target": "x", "numbers": [1]}, {"target": 1, "numbers": []}],
)
def test_a_task_without_numbers_is_bad_input(truth: Any) -> None:
    with pytest.raises(BadInput, match="ground_truth"):
        countdown.compute_score("countdown", "", truth)


@pytest.mark.parametrize(
    ("response", "reward", "share"),
    [
        ("<answer>(1) Zoey is a knave (2) Ada is a knight</answer>", 1, 1),
        ("Ada is a KNIGHT, and Zoey is a knave.", 1, 1),
        ("Ada is a knight? <answer>Zoey is a knave</answer>", 0, 0.5),
        ("Ada is a knight. Ada is a knave. Zoey is a knave.", 0, 0.5),
        ("Ada is a knight. Zoey is a knave. Bob is a knave.", 0, 1),
        ("Ada is a knave. Zoey is a knight.", 0, 0),
        ("", 0, 0),
    ],
)
def test_everybody_has_one_role(response: str, reward: float, share: float) -> None:
    found = knights.compute_score("kk", response, TRUTH)

    assert found == {"score": reward, "acc": share}


def test_the_truth_may_come_in_three_forms() -> None:
    for truth in (TRUTH, {"solution_text_format": TRUTH}, {"Zoey": "knave", "Ada": "knight"}):
        assert knights.compute_score("kk", TRUTH, truth)["score"] == 1.0
    for nothing in ("", "nobody", {"Zoey": "jester"}, None, "Ada is a knight. Ada is a knave."):
        with pytest.raises(BadInput, match="ground_truth"):
            knights.compute_score("kk", "", nothing)
