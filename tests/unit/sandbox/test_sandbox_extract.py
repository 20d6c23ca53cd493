"""Finding the program in a response."""

from __future__ import annotations

import pytest

from worker.sandbox.extract import extract_code


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("Here:\n```python\nprint(1)\n```\nDone.", "print(1)"),
        ("```py\na = 1\n```\nBetter:\n```Python3\na = 2\n```", "a = 2"),
        ("```python\na = 1\n```\nOutput:\n```\n1\n```", "a = 1"),
        ("```\na = 1\n```\n```\na = 2\n```", "a = 2"),
        ("~~~python\na = 1\n~~~", "a = 1"),
        ("```python\na = 1", "a = 1"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
        ("1. So:\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y"),
        ("```python title=a.py\na = 1\n```", "a = 1"),
        ("```{.python}\na = 1\n```", "a = 1"),
        ("```python\r\na = 1\r\n```\r\n", "a = 1"),
        ("print(int(input()) * 2)", "print(int(input()) * 2)"),
        ("def f(x):\n    return x", "def f(x):\n    return x"),
        ("```python\n```", ""),
    ],
)
def test_the_program_is_found(response: str, code: str) -> None:
    assert extract_code(response) == code


@pytest.mark.parametrize(
    "response",
    ["", "   ", "The answer is 4.", "42", "hello", "a, b", "```cpp\nint main(){}\n```", "x: int"],
)
def test_what_is_no_program_is_none(response: str) -> None:
    assert extract_code(response) is None


def test_another_language_takes_its_own_fences() -> None:
    response = "```python\nprint(1)\n```\n```c++\nint main(){}\n```"
    assert extract_code(response, "cpp") == "int main(){}"


def test_deep_nesting_without_a_fence_is_no_program() -> None:
    assert extract_code("(" * 5000 + ")" * 5000) is None
