"""Reading test cases: the shapes that data sets have, into three kinds of case.

| shape | kind |
| --- | --- |
| `{"inputs": […], "outputs": […]}` | standard input and output |
| the same with `"fn_name"` | a function called with each input |
| `{"assert_case": […]}`, `{"test_list": […]}`, optional `"test_setup_code"` | checks |
| `{"test": "def check(candidate): …", "entry_point": "f"}` | one check |
| `[{"input": …, "output": …}, …]`, also with `stdin` and `stdout` inside | standard input |
| a list of texts | checks |
| any of them as JSON text | |
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.sandbox.errors import BadTests


@dataclass(frozen=True, slots=True)
class StdinCase:
    """Run the program with this input; compare what it prints. `expected` None expects nothing."""

    stdin: str
    expected: Any


@dataclass(frozen=True, slots=True)
class CallCase:
    """Call a function, or a method of `Solution`, with these arguments; compare what it returns."""

    function: str
    args: tuple[Any, ...]
    expected: Any

    def fields(self) -> dict[str, Any]:
        """The case as the harness takes it."""
        return {
            "kind": "call",
            "function": self.function,
            "args": list(self.args),
            "expected": self.expected,
        }


@dataclass(frozen=True, slots=True)
class TextCase:
    """Run this text with the program's names in it; it passes if it ends without an exception."""

    source: str

    def fields(self) -> dict[str, Any]:
        """The case as the harness takes it."""
        return {"kind": "text", "source": self.source}


Case = StdinCase | CallCase | TextCase


def read_cases(tests: Any) -> list[Case]:
    """Return the cases in order. Raises BadTests with the field and the value."""
    if isinstance(tests, str | bytes):
        tests = _parsed(tests)
    if isinstance(tests, Mapping):
        cases = _from_mapping(tests)
    elif isinstance(tests, Sequence):
        cases = _from_list(tests)
    else:
        raise BadTests(f"ground_truth: test cases expected (got {_short(tests)})")
    if not cases:
        raise BadTests("ground_truth: there are no test cases in it")
    return cases


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        source = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if "assert" in source:
            return [source]
        raise BadTests(f"ground_truth: neither JSON nor assertions (got {_short(text)})") from None


def _from_mapping(tests: Mapping[str, Any]) -> list[Case]:
    if tests.get("test") is not None and tests.get("entry_point"):
        return [_text("test", f"{tests['test']}\n\ncheck({tests['entry_point']})")]
    for name in ("assert_case", "test_list"):
        if tests.get(name):
            setup = "\n".join(map(str, _list(tests, "test_imports")))
            setup += f"\n{tests.get('test_setup_code') or ''}\n"
            return [_text(name, source, setup=setup) for source in _list(tests, name)]
    if "inputs" not in tests and "outputs" not in tests:
        found = ", ".join(map(str, list(tests)[:8])) or "nothing"
        raise BadTests(
            "ground_truth: inputs and outputs, assert_case, test_list, or test and entry_point "
            f"expected (got {found})"
        )
    inputs, outputs = _list(tests, "inputs"), _list(tests, "outputs")
    if len(inputs) != len(outputs):
        raise BadTests(f"ground_truth: {len(inputs)} inputs but {len(outputs)} outputs")
    function = tests.get("fn_name")
    if function:
        pairs = zip(inputs, outputs, strict=True)
        return [CallCase(str(function), _arguments(given), wanted) for given, wanted in pairs]
    return [_stdin(given, wanted) for given, wanted in zip(inputs, outputs, strict=True)]


def _from_list(tests: Sequence[Any]) -> list[Case]:
    cases: list[Case] = []
    for place, item in enumerate(tests):
        if isinstance(item, str):
            cases.append(_text(f"[{place}]", item))
            continue
        if not isinstance(item, Mapping) or "input" not in item or "output" not in item:
            raise BadTests(f"ground_truth[{place}]: input and output expected (got {_short(item)})")
        given, wanted = item["input"], item["output"]
        given = given.get("stdin") if isinstance(given, Mapping) else given
        wanted = wanted.get("stdout") if isinstance(wanted, Mapping) else wanted
        cases.append(_stdin(given, wanted))
    return cases


def _stdin(given: Any, wanted: Any) -> StdinCase:
    text = "" if given is None else given
    if isinstance(text, list | tuple):
        text = "\n".join(map(str, text))
    return StdinCase(str(text), wanted)


def _arguments(given: Any) -> tuple[Any, ...]:
    """Arguments as a list, or as text with one JSON value a line; blank lines are nothing."""
    if isinstance(given, list | tuple):
        return tuple(given)
    if given is None:
        return ()
    if not isinstance(given, str):
        return (given,)
    return tuple(_value(line) for line in given.splitlines() if line.strip())


def _value(line: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(line.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return line


def _text(name: str, source: Any, *, setup: str = "") -> TextCase:
    if not isinstance(source, str):
        raise BadTests(f"ground_truth.{name}: text expected (got {_short(source)})")
    if not source.strip():
        raise BadTests(f"ground_truth.{name}: a check is empty")
    source = f"{setup}{source}".strip("\n")
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise BadTests(f"ground_truth.{name}: does not parse: {error}") from None
    return TextCase(source)


def _list(tests: Mapping[str, Any], name: str) -> list[Any]:
    found = tests.get(name)
    if found is None:
        return []
    if hasattr(found, "tolist"):
        found = found.tolist()
    if isinstance(found, str) or not isinstance(found, Sequence):
        raise BadTests(f"ground_truth.{name}: a list expected (got {_short(found)})")
    return list(found)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
