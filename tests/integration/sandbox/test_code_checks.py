"""What honest checks may do with a program, though the two live in different processes."""

from __future__ import annotations

import asyncio
from typing import Any

PROGRAM = """
import math
from collections import Counter, namedtuple

class MyError(ValueError): pass
def double(x): return 2 * x
def sort_in_place(items): items.sort()
def fail(): raise MyError("m")
class Stack:
    limit = 3
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item); return self
    def top(self): return self.items[-1]
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    @staticmethod
    def make(): return Stack()
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    def __eq__(self, other): return (self.x, self.y) == (other.x, other.y)
    def __lt__(self, other): return self.x < other.x
    def __repr__(self): return f"Vector({self.x}, {self.y})"
def count_up(n):
    for i in range(n): yield i
def apply(function, x): return function(x)
def total(tree): return 0 if tree is None else tree.val + total(tree.left)
def pair(): return (1, 2)
def group(): return {1, 2}
def words(text): return Counter(text)
def same(items): return items
def sum(a, b): return a + b
def nothing(): pass
def fill(board): board[0][0] = 9
LIMIT = 7
point = namedtuple("point", "x y")
def where(): return point(1, 2)
def read():
    try: return input()
    except EOFError: return "no input"
"""
GOOD = {
    "a value": "assert double(2) == 4",
    "an argument changed in place": "a = [3, 1]\nsort_in_place(a)\nassert a == [1, 3]",
    "a nested argument": "b = [[1, 2], [3]]\nfill(b)\nassert b == [[9, 2], [3]]",
    "the same object back": "a = [1]\nassert same(a) is a",
    "an import of the program": "from solution import double as d\nassert d(2) == 4",
    "a library of its own": "import math\nassert math.isclose(double(2), 4.0000000001)",
    "a library that the program imported": "assert math.floor(double(1.2)) == 2",
    "methods and attributes": "s = Stack().push(3)\nassert s.top() == 3 and s.items == [3]",
    "setting an attribute": "s = Stack()\ns.items = [1, 2]\nassert len(s) == 2 and 2 in s",
    "class attributes and static methods": "assert Stack.limit == 3 and Stack.make().items == []",
    "isinstance": "assert isinstance(Stack(), Stack) and not isinstance(Stack(), Vector)",
    "its own exceptions": "try:\n    fail()\n    raise SystemError\nexcept MyError as e:\n"
    "    assert str(e) == 'm'",
    "built-in exceptions": "try:\n    fail()\n    raise SystemError\nexcept ValueError:\n    pass",
    "a generator": "assert list(count_up(3)) == [0, 1, 2] and 2 in count_up(3)",
    "a function passed in": "assert apply(lambda v: v + 1, 3) == 4",
    "an object passed in": (
        "class T:\n    def __init__(self, val, left=None): self.val, self.left = val, left\n"
        "assert total(T(1, T(2))) == 3"
    ),
    "its operators": "assert Vector(1, 2) + Vector(3, 4) == Vector(4, 6)\n"
    "assert (Vector(1, 2) * 3).x == 3 and Vector(1, 0) < Vector(2, 0)",
    "its text": "assert repr(Vector(1, 2)) == str(Vector(1, 2)) == 'Vector(1, 2)'",
    "kinds": "assert pair() == (1, 2) and pair() != [1, 2] and type(group()) is set",
    "counters and named tuples": "assert words('aab') == {'a': 2, 'b': 1} and where().y == 2",
    "a name of the language that the task asks for": "assert sum(2, 3) == 5",
    "a name of the language beside the task's": "assert max([double(1), double(2)]) == 4",
    "a global value": "assert LIMIT == 7",
    "None": "assert nothing() is None",
    "test functions": "def test_a():\n    assert double(1) == 2\ndef test_b():\n    assert pair()",
    "a test case": "import unittest\nclass C(unittest.TestCase):\n"
    "    def test(self):\n        self.assertEqual(double(1), 2)",
    "large values": "assert double([0] * 100_000) == [0] * 200_000",
    "large numbers": "assert double(10 ** 5000) == 2 * 10 ** 5000",
    "an empty input": "assert read() == 'no input'",
}
BAD = {
    "a wrong value": "assert double(2) == 5",
    "a test function that fails": "def test_a():\n    assert double(1) == 3",
    "a test case that fails": "import unittest\nclass C(unittest.TestCase):\n"
    "    def test(self):\n        self.assertEqual(double(1), 3)",
    "a missing name": "assert halve(2) == 1",
    "a wrong kind": "assert pair() == [1, 2]",
    "an exception that does not come": "try:\n    double(1)\n    assert False\n"
    "except ValueError:\n    pass",
}


async def test_honest_checks_pass(score: Any) -> None:
    found = await score(PROGRAM, {"assert_case": list(GOOD.values())})
    if found["score"] != 1.0:  # say which
        for name, check in GOOD.items():
            each = await score(PROGRAM, {"assert_case": [check]})
            assert each["score"] == 1.0, (name, each)
    assert found["passed"] == len(GOOD)


async def test_checks_that_do_not_hold_fail(score: Any) -> None:
    found = await score(PROGRAM, {"assert_case": list(BAD.values())})
    assert (found["passed"], found["total"]) == (0, len(BAD))


CALLS: list[tuple[str, Any, Any, float]] = [
    ("def f(a, b): return a + b", "1\n2\n", "3", 1.0),
    ("class Solution:\n    def f(self, a): return a > 0", "1", "True", 1.0),
    ("def f(a): return True", "1", "true", 1.0),
    ("def f(a: List[int]): return sorted(a)", [[2, 1]], [[1, 2]], 1.0),
    ("def f(a): return (1, 2)", "1", "[1, 2]", 1.0),
    ("def f(a): return 0.1 + 0.2", "1", "0.3", 1.0),
    ("def f(a): return {1: 2}", "1", '{"1": 2}', 1.0),
    ("def f(a): return 'x'", "1", "x", 1.0),
    ("def f(a): return None", "1", "null", 1.0),
    ("def f(a): return ''", "1", "", 1.0),
    ("def f(a): raise ValueError", "1", "", 0.0),
    ("def f(a): return None", "1", "", 0.0),
    ("def f(a): return 1", "1", "True", 0.0),
    ("pass", "[4, 6]", "2", 0.0),
]


async def test_functions_are_called_with_each_input(score: Any) -> None:
    work = [
        score(code, {"inputs": [given], "outputs": [expected], "fn_name": "f"})
        for code, given, expected, _ in CALLS
    ]
    for call, found in zip(CALLS, await asyncio.gather(*work), strict=True):
        assert found["score"] == call[-1], call


async def test_a_name_of_the_usual_imports_is_not_the_programs(score: Any) -> None:
    tests = {"inputs": ["4\n6"], "outputs": ["2"], "fn_name": "gcd"}
    assert (await score("pass", tests))["status"] == "runtime_error"
    assert (await score("from math import gcd", tests))["score"] == 1.0
