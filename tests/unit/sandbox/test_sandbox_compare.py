"""The one comparer of outputs and of values."""

from __future__ import annotations

import time

import pytest

from worker.sandbox.compare import same_output, same_value


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("4", "4"),
        ("4\n\n", 4),
        ("4\r\n", "4"),
        ("1 2 \n3 ", "1 2\n3"),
        ("1  2", "1 2"),
        ("0.30000000000000004", "0.3"),
        ("[0.30000000000000004, 1]", "[0.3, 1]"),
        ("x = 1.50", "x = 1.5"),
        ("4.0", "4"),
        ("1e-3", "0.001"),
        ("a\nb", ["a", "b"]),
        ("", ""),
        ("anything", None),
        ("nan", "nan"),
    ],
)
def test_outputs_agree(actual: str, expected: object) -> None:
    assert same_output(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("5", "4"),
        ("", "4"),
        ("4\n4", "4"),
        ("  *\n ***", "*\n***"),
        ("a  2", "a 2"),
        ("YES", "yes"),
        ("007", "7"),
        ("3.14159", "3.14"),
        ("1.2.3", "1.20.3"),
        ("12345678901234567891", "12345678901234567892"),
        ("1 2", "1 2 3"),
        ("x1.5", "x1.50"),
        ("nan", "0.5"),
    ],
)
def test_outputs_differ(actual: str, expected: object) -> None:
    assert not same_output(actual, expected)


def test_long_hostile_lines_are_compared_in_linear_time() -> None:
    began = time.process_time()
    for text in ("1" * 150_000 + "a", "1." * 70_000, "-" * 150_000, "1e" * 70_000, "1 " * 70_000):
        assert same_output(text + " ", text)
        assert not same_output(text + "x", text + "y")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (True, True, True),
        ([1, (2, 3)], [1, [2, 3]], True),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, True),
        ({"a": 1}, {"b": 1}, False),
        ("1 ", "1", True),
        (None, None, True),
        (None, "", False),
        ([1], [1, 2], False),
        (10**400, 1.0, False),
        ("1", 1, False),
    ],
)
def test_values_agree_by_kind_and_closeness(actual: object, expected: object, same: bool) -> None:
    assert same_value(actual, expected) is same
