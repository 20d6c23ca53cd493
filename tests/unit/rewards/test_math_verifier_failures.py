"""What the maths library cannot do is a failure of the row, never a reward of 0."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from queue_client import Kind
from worker.rewards import math_verifier
from worker.rewards.errors import BadInput, RewardFailure
from worker.rewards.math_verifier import compute_score


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts other functions in the library's place."""
    real = math_verifier._library()

    def install(**functions: Any) -> None:
        library = real._replace(**functions)
        monkeypatch.setattr(math_verifier, "_library", lambda: library)

    return install


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that raises."""

    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    "error",
    [
        ValueError("signal only works in main thread"),
        RecursionError("too deep"),
        TypeError("cannot determine truth value"),
        NotImplementedError(),
    ],
)
@pytest.mark.parametrize("name", ["parse", "verify"])
def test_an_error_of_the_library_is_a_failure(broken: Any, name: str, error: Exception) -> None:
    broken(**{name: raising(error)})

    with pytest.raises(RewardFailure, match=type(error).__name__) as caught:
        compute_score(None, "\\boxed{5}", "4")

    assert caught.value.kind == Kind.SCORER_ERROR
    assert "signal" not in str(caught.value)  # the text of an error may hold an expression


@pytest.mark.parametrize("name", ["parse", "verify"])
def test_memory_that_ran_out_is_told_as_such(broken: Any, name: str) -> None:
    broken(**{name: raising(MemoryError())})

    with pytest.raises(MemoryError):
        compute_score(None, "\\boxed{5}", "4")


def test_one_reading_that_cannot_be_compared_does_not_hide_another_that_is_equal(
    broken: Any,
) -> None:
    def verify(expected: list[Any], given: list[Any], **_: Any) -> bool:
        if not isinstance(expected[0], str):
            raise TypeError
        return bool(expected == given)

    broken(verify=verify)

    assert compute_score(None, "\\boxed{5}", "5")["score"] == 1.0


@pytest.mark.parametrize("truth", ["\\ldots", "$$", "\\boxed{}"])
def test_a_ground_truth_without_an_answer_is_bad_input(truth: str) -> None:
    with pytest.raises(BadInput, match="no mathematical answer"):
        compute_score(None, "\\boxed{5}", truth)


def test_neither_warnings_nor_texts_of_the_library_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    math_verifier._library()

    compute_score(None, "private \\boxed{5}", "5")

    assert "private" not in caplog.text
    assert "Timeout is disabled" not in caplog.text
