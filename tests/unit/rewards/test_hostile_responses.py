"""Built-ins that run beside others stay quick, total and fair on hostile responses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.rewards.boxed import last_boxed
from worker.rewards.errors import BadInput
from worker.rewards.registry import BUILTINS, builtin

#: A loaded machine is no fault of what is tested.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TWO_MB = 2_000_000
#: Pieces that fill 2 MB; the others fill a tenth, where quadratic work shows as well.
LARGE = frozenset({"a", " ", "1", "{", "\\boxed{", "<answer>", "Answer: ", "\ud800"})
NEEDED = {
    "overlong": {"max_length": 100, "buffer": 10, "unit": "characters"},
    "cosine_length": {"max_length": 100, "unit": "characters"},
}
TRUTHS = {"countdown": {"target": 1, "numbers": [1]}, "knights": "Ada is a knight"}
QUICK = [each.name for each in BUILTINS if each.executor == "thread"]
GRADERS = [
    "gsm8k", "gsm8k_flexible", "math", "math_dapo", "search_r1", "search_r1_substring",
    "multiple_choice", "token_f1",
]  # fmt: skip
PIECES = [
    "a", "1", "-", ".", ",", " ", "\n", "\\", "{", "}", "$", "#", "<", "=", "\0", "é", "\ud800",
    "#### ", "#### 1,", "\\boxed{", "\\boxed{}", "\\boxed ", "\\frac", "\\frac{", "\\sqrt",
    "\\text{ ", "\\text{\\text{", "Answer: ", "answer:\n", "answer is ", "<answer>", "</answer>",
    "<think>", "</think>", "<answer></answer>", "the ", "a, ", "1/", "x=", "\\left(", "^\\circ",
    "０",
]  # fmt: skip


def reward_of(name: str, response: str, truth: Any = "B") -> float:
    """The number a built-in gives."""
    source = "openai/gsm8k" if name == "cosine_length" else None
    truth = TRUTHS.get(name, truth)
    found = builtin(name).load()(source, response, truth, {}, **NEEDED.get(name, {}))
    return float(found["score"] if isinstance(found, Mapping) else found)


@pytest.mark.parametrize("name", QUICK)
def test_two_megabytes_of_anything_are_scored_in_bounded_time(name: str) -> None:
    began = time.thread_time()

    for piece in PIECES:
        size = TWO_MB if piece in LARGE else TWO_MB // 10
        reward_of(name, piece * (size // len(piece)))

    # Linear work on 23 MB; anything quadratic would take hours.
    assert time.thread_time() - began < 60


@pytest.mark.parametrize("name", QUICK)
@patient
@given(
    st.text(st.characters(), max_size=200)
    | st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
)
def test_any_response_has_a_finite_reward(name: str, response: str) -> None:
    reward = reward_of(name, response)

    assert math.isfinite(reward)
    assert reward == reward_of(name, response)


@pytest.mark.parametrize("name", GRADERS)
@pytest.mark.parametrize(
    "response", ["", " ", "\n", "\0", "\\boxed{}", "<answer></answer>", "#### "]
)
def test_an_empty_answer_is_never_right(name: str, response: str) -> None:
    for truth in ("B", "0", "\\%", "1"):
        if name == "multiple_choice" and truth != "B":
            continue
        if name.startswith(("search", "token")) and truth == "\\%":
            continue
        assert reward_of(name, response, truth) <= 0.0


@pytest.mark.parametrize("name", ["gsm8k", "math", "math_dapo", "search_r1", "multiple_choice"])
def test_naming_every_candidate_is_not_an_answer(name: str) -> None:
    letters = "ABCDE"
    lists = [
        "Answer: " + " or ".join(letters),
        "\\boxed{" + ", ".join(letters) + "}",
        "<answer>" + ", ".join(letters) + "</answer>",
        "#### " + " ".join(letters),
    ]

    assert all(reward_of(name, each, "B") <= 0.0 for each in lists)


@pytest.mark.parametrize("name", GRADERS)
@pytest.mark.parametrize("truth", ["", "  ", None, [], {}, {"answer": "B"}, True, object()])
def test_a_missing_ground_truth_is_bad_input_and_not_a_zero(name: str, truth: Any) -> None:
    with pytest.raises(BadInput, match="ground_truth"):
        reward_of(name, "#### 4", truth)


@pytest.mark.parametrize(
    "each", [b for b in BUILTINS if b.executor == "thread"], ids=lambda b: b.name
)
def test_a_response_that_is_no_text_is_bad_input(each: Any) -> None:
    function: Callable[..., Any] = each.load()
    with pytest.raises(BadInput, match="solution_str"):
        function(None, None, TRUTHS.get(each.name, "B"), {}, **NEEDED.get(each.name, {}))


@patient
@given(st.text(alphabet="\\boxed{}12 ", max_size=80))
def test_a_box_is_found_as_a_plain_parser_finds_it(text: str) -> None:
    found = last_boxed(text)

    if found is not None:
        assert found in text


@patient
@given(
    st.recursive(
        st.sampled_from(["1", "x", "\\}", " "]), lambda s: st.tuples(s, s).map("{%s%s}".__mod__)
    )
)
def test_what_was_put_in_a_box_is_taken_out_of_it(inside: str) -> None:
    assert last_boxed(f"so \\boxed{{{inside}}} it is") == inside
