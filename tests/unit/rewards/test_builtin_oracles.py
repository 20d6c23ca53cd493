"""Built-in rewards give the values that the reference scorers were measured to give."""

from __future__ import annotations

from typing import Any

import pytest

from worker.rewards import (
    geo3k,
    gsm8k,
    math_dapo,
    math_string,
    math_verifier,
    multiple_choice,
    search_r1,
    token_f1,
)
from worker.rewards.errors import BadInput


@pytest.mark.parametrize(
    ("response", "truth", "reward"),
    [
        ("#### 42", "42", 1),
        ("#### 42.", "42", 0),
        ("#### 1,234", "1234", 1),
        ("#### $42", "42", 0),
        ("####42", "42", 0),
        ("#### -3", "-3", 1),
        ("#### 42 and then #### 43", "43", 1),
        ("#### 42 and then #### 43", "42", 0),
        ("#### 42" + " more" * 61, "42", 0),
        ("#### 42.0", "42", 0),
        ("#### 72%", "72", 1),
        ("#### ４２", "42", 0),
        ("#### \u0664\u0662", "42", 0),
        ("", "42", 0),
        ("The answer is 42", "42", 0),
        ("#### 42", 42, 1),
        ("#### 1234", "1,234", 1),
    ],
)
def test_gsm8k_reads_the_number_behind_the_last_mark(
    response: str, truth: Any, reward: float
) -> None:
    assert gsm8k.compute_score("openai/gsm8k", response, truth) == reward


@pytest.mark.parametrize(
    ("response", "truth", "reward"),
    [
        ("the answer is 42", "42", 1),
        ("1,234", "1234", 0),
        ("1,234", "1,234", 1),
        ("41 or 42", "42", 1),
        ("42 . , -", "42", 1),
        ("４２", "42", 0),
        ("", "42", 0),
        ("42" + " more" * 61, "42", 0),
    ],
)
def test_flexible_gsm8k_reads_the_last_number_as_text(
    response: str, truth: str, reward: float
) -> None:
    assert gsm8k.compute_flexible_score(None, response, truth) == reward


def test_gsm8k_may_reward_the_form_of_a_wrong_answer() -> None:
    assert gsm8k.compute_score(None, "#### 1", "2", score=5.0, format_score=0.5) == 0.5
    assert gsm8k.compute_score(None, "#### 2", "2", score=5.0, format_score=0.5) == 5.0
    assert gsm8k.compute_score(None, "two", "2", score=5.0, format_score=0.5) == 0.0


@pytest.mark.parametrize(
    ("response", "truth", "reward"),
    [
        (r"\boxed{0.5}", r"\frac{1}{2}", 1),
        (r"\boxed{1/2}", r"\frac12", 1),
        (r"\boxed{1} and \boxed{2}", "2", 1),
        (r"\boxed{1} and \boxed{2}", "1", 0),
        (r"\boxed{x=3}", "3", 1),
        (r"\boxed{3", "3", 0),
        (r"\boxed{10\%}", "10", 1),
        (r"\boxed{1,000}", "1000", 0),
        (r"\boxed{\text{(B)}}", "B", 0),
        (r"\boxed{\dfrac{1}{\sqrt2}}", r"\frac{1}{\sqrt{2}}", 1),
        (r"\boxed{\left(3, \frac\pi2\right)}", r"(3,\frac\pi2)", 1),
        (r"\boxed{90^\circ}", "90", 1),
        (r"\boxed{5 \text{ cm}}", "5", 1),
        (r"\boxed{.5}", "0.5", 1),
        (r"\boxed{\$5}", "5", 1),
        (r"\boxed 7", "7", 1),
        (r"\fbox{7}", "7", 1),
        (r"\boxed{}", "7", 0),
        (r"\boxed{%}", r"\%", 0),
        ("7", "7", 0),
        ("", "7", 0),
    ],
)
def test_math_compares_the_last_box_by_spelling(response: str, truth: str, reward: float) -> None:
    assert math_string.compute_score("lighteval/MATH", response, truth) == reward


@pytest.mark.parametrize(
    ("response", "truth", "reward", "pred"),
    [
        ("Answer: 42", "42", 1, "42"),
        ("answer : 42", "42", 1, "42"),
        (r"Answer: \boxed{42}", "42", 1, "42"),
        (r"\boxed{42}", "42", 1, "42"),
        ("42", "42", -1, "[INVALID]"),
        ("Answer: 1,000", "1000", 1, "1000"),
        ("Answer: 42" + " x" * 160, "42", -1, "[INVALID]"),
        ("Answer: 41\nAnswer: 42", "42", 1, "42"),
        ("Answer: 42\nAnswer: 41", "42", -1, "41"),
        ("Answer: 0.5", r"\frac{1}{2}", -1, "0.5"),
        (r"Answer: $\frac12$", r"\frac{1}{2}", 1, r"\frac{1}{2}"),
        (r"Answer: \text{42 points}", "42", 1, "42"),
        ("Answer: x = 42", "42", 1, "42"),
        (r"Answer: \text{}", "42", -1, ""),
        ("", "42", -1, "[INVALID]"),
    ],
)
def test_dapo_reads_the_answer_line_and_then_the_box(
    response: str, truth: str, reward: float, pred: str
) -> None:
    found = math_dapo.compute_score("math_dapo", response, truth)

    assert found == {"score": float(reward), "acc": reward == 1, "pred": pred}


def test_dapo_gives_an_answer_line_no_second_chance_in_a_box() -> None:
    assert math_dapo.compute_score(None, "\\boxed{42}\nAnswer: 41", "42")["score"] == -1.0


@pytest.mark.parametrize(
    ("response", "truth", "exact", "substring"),
    [
        ("<answer>The  CAT!</answer>", "cat", 1, 1),
        ("<answer>dog</answer> <answer>a cat</answer>", ["cat", "kitten"], 1, 1),
        ("<answer>cat</answer> <answer>dog</answer>", {"target": "cat"}, 0, 0),
        ("cat", "cat", 0, 0),
        ("<answer>cat</answer>" * 10, "cat", 1, 1),
        ("<answer>cat</answer>" * 11, "cat", 0.25, 1),
        ("<answer>cat</answer>" + "</answer>" * 10, "cat", 0.25, 1),
        ("<answer>cat</answer> <answer>dog</answer> </answer>", "dog", 1, 1),
        ("<answer>dog <answer>cat</answer>", "cat", 0, 1),
        ("<answer>cat", "cat", 0, 0),
        ("</answer>cat<answer>", "cat", 0, 0),
        ("<answer>cote d ivoire</answer>", "Côte d'Ivoire", 0, 0),
        ("<answer>a big cat sat</answer>", {"target": ["cat"]}, 0, 1),
        ("<answer></answer>", "cat", 0, 0),
        ("", "cat", 0, 0),
    ],
)
def test_search_r1_compares_the_last_answer_by_words(
    response: str, truth: Any, exact: float, substring: float
) -> None:
    assert search_r1.compute_score("searchR1_nq", response, truth) == exact
    assert search_r1.compute_substring_score("searchR1_nq", response, truth) == substring


@pytest.mark.parametrize("empty", ["the", "?!", ["a", "..."]])
def test_a_target_without_words_does_not_match_an_empty_answer(empty: Any) -> None:
    for function in (search_r1.compute_score, search_r1.compute_substring_score):
        with pytest.raises(BadInput, match="no words"):
            function(None, "<answer></answer>", empty)


def test_a_list_of_guesses_is_stopped_by_max_words() -> None:
    guesses = "<answer>Paris London Rome Berlin</answer>"

    assert search_r1.compute_substring_score(None, guesses, "Rome") == 1.0
    assert search_r1.compute_substring_score(None, guesses, "Rome", max_words=3) == 0.0


@pytest.mark.parametrize(
    ("response", "truth", "reward"),
    [
        (r"\boxed{0.5}", r"\frac{1}{2}", 1),
        (r"\boxed{\frac{1}{2}}", "0.5", 1),
        (r"\boxed{10\%}", "10", 1),
        (r"\boxed{10\%}", "0.1", 1),
        (r"\boxed{\{2, 1\}}", r"\{1, 2\}", 1),
        (r"\boxed{(2, 1, 3)}", "(1, 2, 3)", 0),
        (r"\boxed{x=3}", "3", 1),
        (r"\boxed{3}", "x=3", 1),
        ("the answer is 42", "42", 1),
        (r"\boxed{1} or \boxed{2}", "2", 0),
        ("", "2", 0),
        (r"\boxed{\frac{1}{3}}", r"\frac{1}{3}", 1),
        (r"\boxed{1,000}", 1000, 1),
        (r"\boxed{3}", ["4", "3"], 1),
        (r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", r"\begin{pmatrix}1\\2\end{pmatrix}", 1),
        (r"\boxed{\frac{1}{0}}", "1", 0),
        ("５", "5", 0),
        ("9" * 5_000, "5", 0),
        ("\ud800", "5", 0),
        (r"\boxed{5} " + "words " * 100_000, "5", 1),
        (r"\boxed{" + "1+" * 100_000 + "1}", "5", 0),
    ],
)
def test_math_verify_compares_as_mathematics(response: str, truth: Any, reward: float) -> None:
    assert math_verifier.compute_score(None, response, truth)["score"] == reward


def test_geometry_weighs_the_answer_and_the_form() -> None:
    score = geo3k.compute_score

    assert score(None, r"<think>a</think> \boxed{30}", "30")["score"] == pytest.approx(1.0)
    assert score(None, r"\boxed{30}", "30")["score"] == pytest.approx(0.9)
    assert score(None, r"<think>a</think> \boxed{31}", "30")["score"] == pytest.approx(0.1)
    assert score(None, r"\boxed{30} <think></think>", "30")["format"] == 0.0
    assert score(None, "30", "30")["score"] == 0.0
    assert score(None, r"<think>a</think> \boxed{1} \boxed{30}", "30")["acc"] == 1.0


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B", "B"),
        ("(b)", "B"),
        ("The answer is B.", "B"),
        ("Answer: (B) Paris", "B"),
        ("Answer: A\nNo. Answer: B", "B"),
        (r"so \boxed{\text{(B)}}", "B"),
        ("<answer>B. Paris</answer>", "B"),
        ("<answer>B</answer> Answer: A", "B"),
        ("the answer is **B**", "B"),
        ("A or B", ""),
        ("The answer is A or B", ""),
        ("A, B", ""),
        ("A/B", ""),
        ("(A) and (B)", ""),
        ("Because B", ""),
        ("The answer is Bob", ""),
        ("Ｂ", ""),
        ("Z", ""),
        ("", ""),
    ],
)
def test_a_choice_is_one_stated_letter(response: str, letter: str) -> None:
    found = multiple_choice.compute_score(None, response, "B")

    assert found == {"score": float(letter == "B"), "pred": letter}


def test_letters_may_be_given_and_bound_the_ground_truth() -> None:
    score = multiple_choice.compute_score

    assert score(None, "the answer is Z", "z", letters="xyz")["score"] == 1.0
    with pytest.raises(BadInput, match="none of the letters XY"):
        score(None, "Z", "Z", letters="XY")


def test_token_f1_counts_shared_words() -> None:
    score = token_f1.compute_score

    assert score(None, "<answer>the red fox</answer>", "fox")["score"] == pytest.approx(2 / 3)
    assert score(None, "red red red", "red")["precision"] == pytest.approx(1 / 3)
    assert score(None, "x", ["y", "x"])["score"] == 1.0
    assert score(None, "yes it is", "yes")["score"] == 0.0
    assert score(None, "", "yes")["score"] == 0.0
    with pytest.raises(BadInput, match="no words"):
        score(None, "", "the")
