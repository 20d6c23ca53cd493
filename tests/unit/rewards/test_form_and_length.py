"""Rewards for form, length and repetition: bounds, both ends, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from queue_client import Output
from worker.rewards.errors import BadInput
from worker.rewards.formats import compute_tag_score, compute_think_score
from worker.rewards.lengths import compute_cosine_score, compute_overlong_score
from worker.rewards.repetition import compute_score as repetition


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("<think>a</think>b", 1),
        ("<think>\na\n</think>\n\nb", 1),
        ("<think></think>b", 0),
        ("<think>a</think>", 0),
        ("<think>a</think> \n", 0),
        ("x<think>a</think>b", 0),
        ("<think>a<think>b</think>c", 0),
        ("<think>a</think>b</think>c", 0),
        ("</think>a<think>b", 0),
        ("", 0),
    ],
)
def test_thinking_comes_first_once_and_is_followed_by_an_answer(
    response: str, reward: float
) -> None:
    assert compute_think_score(None, response) == reward


def test_an_answer_tag_may_be_asked_for_too() -> None:
    response = "<think>a</think>\n<answer>b</answer>\n"

    assert compute_think_score(None, response, answer_tag="answer") == 1.0
    assert compute_think_score(None, response + "c", answer_tag="answer") == 0.0
    assert compute_think_score(None, "<think>a</think>b", answer_tag="answer") == 0.0
    assert compute_think_score(None, "<r>a</r>b", tag="r") == 1.0


def test_each_tag_counts_once_and_only_if_it_stands_once() -> None:
    assert compute_tag_score(None, "<think>a</think><answer>b</answer>") == 1.0
    assert compute_tag_score(None, "<think>a</think><answer>b") == 0.75
    assert compute_tag_score(None, "<think>" * 50) == 0.0
    assert compute_tag_score(None, "<a></a>", tags=["a"]) == 1.0
    with pytest.raises(ValueError, match="tags: expected a list of names, got 'think'"):
        compute_tag_score(None, "", tags="think")


def overlong(tokens: int, **facts: Any) -> dict[str, Any]:
    """The penalty of a response of so many tokens under a cap of 100 and a buffer of 20."""
    outputs = [Output(response_ids=[1] * 500), Output(response_ids=np.ones(tokens, np.int32))]
    return compute_overlong_score(None, "x", outputs=outputs, max_length=100, buffer=20, **facts)


@pytest.mark.parametrize(
    ("tokens", "penalty"), [(0, 0), (80, 0), (81, -0.05), (90, -0.5), (100, -1), (5000, -1)]
)
def test_the_overlong_penalty_grows_in_the_buffer_and_stops_at_its_factor(
    tokens: int, penalty: float
) -> None:
    found = overlong(tokens)

    assert found["score"] == pytest.approx(penalty)
    assert (found["length"], found["overlong"]) == (tokens, tokens > 80)
    assert type(found["score"]) is float
    assert overlong(tokens, penalty_factor=3)["score"] == pytest.approx(3 * penalty)


def test_length_is_counted_in_what_was_asked_for() -> None:
    in_characters = overlong(5000, unit="characters")

    assert in_characters["length"] == 1
    with pytest.raises(BadInput, match="response_ids"):
        compute_overlong_score(None, "x", max_length=9, buffer=1)
    with pytest.raises(BadInput, match="response_ids"):
        compute_overlong_score(None, "x", outputs=[Output(text="x")], max_length=9, buffer=1)
    with pytest.raises(ValueError, match="unit: must be tokens or characters, got 'words'"):
        overlong(1, unit="words")


@pytest.mark.parametrize("buffer", [0, -1, 101])
def test_a_buffer_outside_the_length_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match=f"buffer.*{buffer}"):
        compute_overlong_score(None, "x", max_length=100, buffer=buffer, unit="characters")


def cosine(response: str, truth: str = "4", **facts: Any) -> dict[str, Any]:
    """A gsm8k answer under a cap of 100 characters."""
    return compute_cosine_score(
        "openai/gsm8k", response, truth, max_length=100, unit="characters", **facts
    )


def test_a_right_answer_loses_by_length_and_a_wrong_one_gains() -> None:
    short, long = "#### 4", " " * 200 + "#### 4"

    assert cosine(short)["score"] > cosine(" " * 50 + short)["score"] > cosine(long)["score"]
    assert cosine(long)["score"] == pytest.approx(0.5)
    assert cosine("", "5")["score"] == pytest.approx(-1.0)
    assert cosine(long, "5")["score"] == pytest.approx(-0.5)
    assert cosine(short)["acc"] is True


def test_the_judge_of_right_and_wrong_is_chosen_by_source_or_by_name() -> None:
    assert cosine(r"\boxed{4}", correct="math")["acc"] is True
    assert cosine(r"\boxed{4}", correct="math_dapo")["acc"] is True
    assert cosine(r"\boxed{5}", correct="math_dapo")["acc"] is False
    for name in ("judge", "cosine_length"):
        with pytest.raises(ValueError, match=f"correct: '{name}'"):
            cosine("", correct=name)
    with pytest.raises(ValueError, match="max_length: must be above 0, got 0"):
        compute_cosine_score("openai/gsm8k", "", "4", max_length=0)


@pytest.mark.parametrize(
    ("response", "ngram", "share"),
    [
        ("a b c d", 3, 0.0),
        ("a a a a", 1, 0.75),
        ("a a a a", 3, 0.5),
        ("A a", 1, 0.5),
        ("a b a b a", 2, 0.5),
        ("a b", 3, 0.0),
        ("", 1, 0.0),
    ],
)
def test_repetition_is_the_share_of_ngrams_seen_before(
    response: str, ngram: int, share: float
) -> None:
    found = repetition(None, response, ngram=ngram, max_penalty=2.0)

    assert found == {"score": -2 * share or 0.0, "repeated": share}


def test_characters_are_counted_where_a_script_has_no_spaces() -> None:
    assert repetition(None, "好好好好", ngram=1, unit="characters")["repeated"] == 0.75
    with pytest.raises(ValueError, match="unit"):
        repetition(None, "x", unit="tokens")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ngram: must be at least 1, got 0"):
        repetition(None, "x", ngram=0)
