"""Built-in rewards agree with verl's own functions, row by row."""

from __future__ import annotations

import itertools
import random

import pytest

from worker.rewards import gsm8k, math_dapo, math_string, math_verifier, search_r1

pytestmark = pytest.mark.verl

ANSWERS = [
    "42", "-3", "1,234", "1234", "0.5", ".5", r"\frac{1}{2}", r"\frac12", r"\frac1{72}",
    r"\dfrac{3}{4}", "1/2", "2/4", "-1/2", "x=3", "x = 3", "f(x)=3", r"10\%", r"\$5",
    r"5 \text{ cm}", r"\text{(B)}", "B", "(1,2)", r"\left(1,2\right)", r"90^\circ", r"\sqrt2",
    r"\sqrt{2}", r"2\sqrt3", r"\frac{\sqrt2}{2}", r"\frac\pi2", r"3\pi", "x^2+1", "x^2 + 1",
    r"\begin{pmatrix}1\\2\end{pmatrix}", "42 points", "42.", "42.0", "$42$", "Monday",
    r"\text{Monday}", "10,000", "1,2,3", r"\infty", r"(-\infty,2]", r"\{1,2\}", "5!", "2:3",
]  # fmt: skip
PAIRS = list(itertools.product(ANSWERS, ANSWERS))


@pytest.fixture(scope="module")
def reference():
    """verl's package of reward functions."""
    return pytest.importorskip("verl.utils.reward_score")


def test_gsm8k_agrees(reference) -> None:
    from verl.utils.reward_score.gsm8k import compute_score

    for given, truth in PAIRS:
        if "," in truth:
            continue  # verl never matches these: ours drops the commas
        text = f"so #### {given}"
        strict, flexible = (compute_score(text, truth, method=m) for m in ("strict", "flexible"))
        assert gsm8k.compute_score(None, text, truth) == strict, (given, truth)
        assert gsm8k.compute_flexible_score(None, text, truth) == flexible, (given, truth)


def test_math_agrees(reference) -> None:
    from verl.utils.reward_score.math_reward import compute_score

    for given, truth in PAIRS:
        text = rf"so \boxed{{{given}}}."
        assert math_string.compute_score(None, text, truth) == compute_score(text, truth), text


@pytest.mark.parametrize("form", ["Answer: {}", r"\boxed{{{}}}", r"Answer: \boxed{{{}}}", "{}"])
def test_dapo_accepts_whatever_verl_accepts(reference, form: str) -> None:
    from verl.utils.reward_score.math_dapo import compute_score

    more = 0
    for given, truth in PAIRS:
        text = form.format(given)
        theirs, ours = compute_score(text, truth), math_dapo.compute_score(None, text, truth)
        assert ours["score"] >= theirs["score"], (text, truth)
        more += ours["score"] > theirs["score"]
    assert more < len(PAIRS) / 50  # spacing and \left, which verl keeps


def test_search_answers_agree(reference, capsys: pytest.CaptureFixture[str]) -> None:
    from verl.utils.reward_score.search_r1_like_qa_em import compute_score, compute_score_subem

    pieces = ["<answer>", "</answer>", "a", "the", "cat", "dog", "!", "Cat", " "]
    chance = random.Random(1)
    for _ in range(5_000):
        text = " ".join(chance.choices(pieces, k=chance.randint(0, 14)))
        truth = {"target": [chance.choice(["cat", "dog", "cat dog", "a cat"])]}
        assert search_r1.compute_score(None, text, truth) == compute_score(text, truth), text
        assert search_r1.compute_substring_score(None, text, truth) == compute_score_subem(
            text, truth
        ), text


def test_math_verify_agrees(reference) -> None:
    pytest.importorskip("math_verify")
    from verl.utils.reward_score.math_verify import _verify_in_subprocess as verify

    for given, truth in PAIRS[::7]:
        text = rf"so \boxed{{{given}}}."
        ours = math_verifier.compute_score(None, text, truth)["score"]
        assert ours == verify(rf"\boxed{{{truth}}}", text), (given, truth)
