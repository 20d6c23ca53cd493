"""The one comparer of a program's output with the expected one, the same for every backend.

Two texts agree when, after the steps below, every line agrees:

1. `\\r\\n` and `\\r` are line ends; white space at the end of a line, and empty lines at the end of
   the text, do not count. Nothing else is trimmed: indentation matters.
2. Two lines agree when they are equal, or
3. when they hold the same text around decimal numbers that are close: relative 1e-5 or absolute
   1e-8. Whole numbers against whole numbers are compared exactly, digit by digit.
4. On a line that holds numbers only, white space before and between them does not count.

Standard library only and Python 3.8: this text also travels into the harness.
"""

from __future__ import annotations

import math
import re
from typing import Any

RELATIVE = 1e-5
ABSOLUTE = 1e-8

_RUN = re.compile(r"([-+]?[\w.]+(?:(?<=[eE])[-+]\d+)?)")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_LONGEST_LINE = 200_000  # characters; longer lines are compared as they are


def same_output(actual: Any, expected: Any) -> bool:
    """Return whether a program's output is the expected one; None expects nothing."""
    if expected is None:
        return True
    ours, theirs = lines_of(actual), lines_of(expected)
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def lines_of(value: Any) -> list[str]:
    """Return the lines of a text, or of a list with one entry a line, as they are compared."""
    text = "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def close(left: float, right: float) -> bool:
    """Return whether two numbers are the same but for rounding; nan agrees with nan."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def same_value(actual: Any, expected: Any) -> bool:
    """Return whether two plain values agree: decimals when close, a tuple like a list.

    True is not 1 here, and text is compared as output.
    """
    if isinstance(actual, bool) or isinstance(expected, bool):
        return type(actual) is type(expected) and actual == expected
    if isinstance(actual, (int, float)) and isinstance(expected, (int, float)):
        if isinstance(actual, int) and isinstance(expected, int):
            return actual == expected
        return _close_numbers(actual, expected)
    if isinstance(actual, str) and isinstance(expected, str):
        return actual == expected or same_output(actual, expected)
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(actual) == len(expected) and all(map(same_value, actual, expected))
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            same_value(actual[key], expected[key]) for key in actual
        )
    return type(actual) is type(expected) and bool(actual == expected)


def _close_numbers(left: float, right: float) -> bool:
    try:
        return close(float(left), float(right))
    except OverflowError:
        return left == right


def _same_line(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    if max(len(ours), len(theirs)) > _LONGEST_LINE:
        return False
    our_rest, our_numbers = _split(ours)
    their_rest, their_numbers = _split(theirs)
    if len(our_numbers) != len(their_numbers) or not our_numbers:
        return False
    bare = not "".join(our_rest).strip() and not "".join(their_rest).strip()
    if not bare and our_rest != their_rest:
        return False
    return all(map(_same_number, our_numbers, their_numbers))


def _split(line: str) -> tuple[list[str], list[str]]:
    """Return the text around the numbers of a line, and the numbers; in linear time."""
    rest, numbers = [""], []
    for place, piece in enumerate(_RUN.split(line)):
        number = piece.rstrip(".") if place % 2 else ""
        if number and _NUMBER.fullmatch(number):
            numbers.append(number)
            rest.append(piece[len(number) :])
        else:
            rest[-1] += piece
    return rest, numbers


def _same_number(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    if _is_whole(ours) and _is_whole(theirs):
        return False
    return close(float(ours), float(theirs))


def _is_whole(number: str) -> bool:
    return number.lstrip("+-").isdigit()
