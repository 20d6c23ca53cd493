"""Reading test cases in the shapes that data sets have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from worker.sandbox.cases import CallCase, StdinCase, TextCase, read_cases
from worker.sandbox.errors import BadTests


def test_inputs_and_outputs_are_standard_input_and_output() -> None:
    tests = {"inputs": ["1\n", ["a", "b"], None], "outputs": ["2", ["x", "y"], 4]}
    assert read_cases(json.dumps(tests)) == [
        StdinCase("1\n", "2"),
        StdinCase("a\nb", ["x", "y"]),
        StdinCase("", 4),
    ]


def test_fn_name_makes_calls_and_a_trailing_newline_is_nothing() -> None:
    tests = {"inputs": ["1\n[2, 3]\n", [[4], 5], "abc"], "outputs": [1, [2], "3"], "fn_name": "f"}
    assert read_cases(tests) == [
        CallCase("f", (1, [2, 3]), 1),
        CallCase("f", ([4], 5), [2]),
        CallCase("f", ("abc",), "3"),
    ]


def test_assertions_come_in_many_shapes() -> None:
    assert read_cases({"assert_case": ["assert f()"]}) == [TextCase("assert f()")]
    setup = {"test_list": ["assert f()"], "test_setup_code": "import math"}
    assert read_cases(setup) == [TextCase("import math\nassert f()")]
    human = {"test": "def check(candidate):\n    assert candidate()", "entry_point": "f"}
    assert read_cases(human)[0] == TextCase(f"{human['test']}\n\ncheck(f)")
    assert read_cases(["assert f()", "assert g()"])[1] == TextCase("assert g()")
    assert read_cases("assert f()\nassert g()") == [TextCase("assert f()\nassert g()")]


def test_a_list_of_pairs_is_standard_input_and_output() -> None:
    pairs = [{"input": "1", "output": "2"}, {"input": {"stdin": "3"}, "output": {"stdout": "4"}}]
    assert read_cases(pairs) == [StdinCase("1", "2"), StdinCase("3", "4")]


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (None, "test cases expected"),
        ("nonsense", "neither JSON nor assertions"),
        ({}, "inputs and outputs"),
        ({"inputs": [], "outputs": []}, "no test cases"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs but 0 outputs"),
        ({"inputs": "1", "outputs": ["1"]}, "inputs: a list expected"),
        ({"assert_case": ["assert ("]}, "does not parse"),
        ({"assert_case": [""]}, "is empty"),
        ({"assert_case": [3]}, "text expected"),
        ([{"input": "1"}], r"\[0\]: input and output expected"),
        (7, "test cases expected"),
    ],
)
def test_what_cannot_be_read_names_the_field(tests: Any, said: str) -> None:
    with pytest.raises(BadTests, match=said):
        read_cases(tests)
