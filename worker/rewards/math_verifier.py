r"""Maths answers compared as mathematics, by the math-verify library.

The library can run without end (`9^{9^{9^{9}}}`, `(10^8)!`) and its own time limits need signals:
they fail outside the main thread, break other timers of the process, and its timeout is a
BaseException. So they stay off, and this function belongs in a process that may be killed; the
registry says so. What the library cannot do is a failure here, never a silent 0.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from worker.rewards.boxed import last_boxed
from worker.rewards.errors import BadInput, RewardFailure
from worker.rewards.inputs import answer_texts, response_text
from worker.rewards.registry import shown

#: Answers stand at the end, and the library's patterns are slower than linear: 20,000 characters of
#: `\\[` take 6 s, 8,000 take 1 s.
LONGEST_CHARS = 8_000
PRED_CHARS = 200

_DELIMITED = re.compile(r"\\boxed|(?<!\\)\$|\\\(|\\\[")

Parsed = list[Any]


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    precision: int = 6,
    longest_chars: int = LONGEST_CHARS,
) -> dict[str, Any]:
    r"""Return `score` (1.0 or 0.0) and `pred`, the answer that was found ("" for none).

    Several accepted answers may be given as a list. Numbers agree to `precision` decimals.

    >>> compute_score(None, r"hence \boxed{0.5}", r"\frac{1}{2}")["score"]
    1.0

    Raises BadInput for a ground truth that holds no answer, RewardFailure where the library fails.
    """
    truths = [parse_truth(truth) for truth in answer_texts(ground_truth)]
    answer = parse_response(shortened(response_text(solution_str), longest_chars))
    is_right = any(are_equal(truth, answer, precision=precision) for truth in truths)
    return {"score": float(is_right), "pred": spelled(answer)}


def prepare() -> None:
    """Load the library and read one answer: half a second that no row should pay for.

    Raises RewardFailure if it is not installed.
    """
    parse_response("\\boxed{\\frac{1}{2}}")


def shortened(response: str, longest_chars: int) -> str:
    """Return the end of a long response, or its last box where the end has none."""
    tail = response[-longest_chars:]
    if len(tail) == len(response) or "\\boxed" in tail:
        return tail
    boxed = last_boxed(response)
    return tail if boxed is None or len(boxed) > longest_chars else f"\\boxed{{{boxed}}}"


def parse_truth(truth: str) -> Parsed:
    """Return the library's reading of a ground truth; text without delimiters is put in a box."""
    in_box = f"\\boxed{{{truth}}}"
    for text in (truth, in_box) if _DELIMITED.search(truth) else (in_box, truth):
        if parsed := _parse(text, "ground_truth"):
            return parsed
    raise BadInput(f"ground_truth: no mathematical answer in {shown(truth)}")


def parse_response(response: str) -> Parsed:
    """Return the library's reading of a response; empty if it holds no answer."""
    try:
        return _parse(response, "response")
    except RewardFailure as error:
        if type(error.__cause__).__name__ == "SympifyError":
            return []  # what looked like a number is none: other scripts' digits, 5,000 digits
        raise


def are_equal(truth: Parsed, answer: Parsed, *, precision: int = 6) -> bool:
    """Whether any reading of the answer equals any reading of the truth.

    Raises RewardFailure if none does and a comparison failed.
    """
    failures: list[Exception] = []
    for expected in truth:
        for given in answer:
            try:
                if _library().verify(
                    [expected],
                    [given],
                    float_rounding=precision,
                    timeout_seconds=None,
                    raise_on_error=True,
                ):
                    return True
            except MemoryError:
                raise  # the process is told apart by it: its heap is not to be trusted
            except Exception as error:  # noqa: BLE001  the library raises whatever sympy raises
                failures.append(error)
    if failures:
        # Told by its type: the text of an error may print an expression without end.
        raise RewardFailure(f"math-verify could not compare: {type(failures[0]).__name__}")
    return False


def spelled(answer: Parsed) -> str:
    """Return an answer as the response spells it, cut to 200 characters."""
    return next((each for each in answer if isinstance(each, str)), "")[:PRED_CHARS]


def _parse(text: str, what: str) -> Parsed:
    try:
        found: Parsed = _library().parse(text, parsing_timeout=None, raise_on_error=True)
    except (RewardFailure, MemoryError):
        raise
    except Exception as error:
        raise RewardFailure(
            f"math-verify could not read the {what}: {type(error).__name__}"
        ) from error
    return found


class _Library(NamedTuple):
    parse: Callable[..., Parsed]
    verify: Callable[..., bool]


@functools.cache
def _library() -> _Library:
    try:
        from math_verify import parse, verify
    except ModuleNotFoundError as error:
        raise RewardFailure(
            f"math_verify needs {error.name}: pip install 'rewardpool[math]'"
        ) from error
    # It warns that its limits are off, and logs the texts it could not read.
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return _Library(parse, verify)
