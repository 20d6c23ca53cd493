"""Countdown: an equation in the last `<answer>` that makes the target from the given numbers.

Each number is used exactly once, with + - * / and brackets, and computed in exact fractions. The
text is parsed, never evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from worker.rewards.errors import BadInput
from worker.rewards.inputs import response_text
from worker.rewards.registry import shown
from worker.rewards.search_r1 import tagged

LONGEST_CHARS = 300
_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-"})


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    score: float = 1.0,
    format_score: float = 0.1,
) -> float:
    """Score a right equation; a readable one that is wrong earns `format_score`, else 0.

    `ground_truth` is `{"target": 24, "numbers": [4, 6, 8, 2]}`.

    >>> compute_score(None, "<answer>(8 - 2) * 4</answer>", {"target": 24, "numbers": [8, 2, 4]})
    1.0
    """
    target, numbers = _task(ground_truth)
    answer = tagged(response_text(solution_str), "answer")
    if answer is None or len(answer) > LONGEST_CHARS:
        return 0.0
    used: list[int] = []
    try:
        value = _value(ast.parse(answer.translate(_SIGNS).strip(), mode="eval").body, used)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0
    except ZeroDivisionError:
        return format_score
    return score if value == target and sorted(used) == sorted(numbers) else format_score


def _task(ground_truth: Any) -> tuple[int, list[int]]:
    if not isinstance(ground_truth, Mapping) or not {"target", "numbers"} <= set(ground_truth):
        raise BadInput(f"ground_truth: needs target and numbers, got {shown(ground_truth)}")
    try:
        target, numbers = int(ground_truth["target"]), [int(n) for n in ground_truth["numbers"]]
    except (TypeError, ValueError):
        raise BadInput(f"ground_truth: not whole numbers: {shown(ground_truth)}") from None
    if not numbers:
        raise BadInput("ground_truth.numbers: is empty")
    return target, numbers


def _value(node: ast.expr, used: list[int]) -> Fraction:
    """The value of an expression; notes the numbers in it. Raises ValueError for anything else."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            used.append(number)
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, used)
        case ast.BinOp(left=left, op=operator, right=right):
            return _combined(operator, _value(left, used), _value(right, used))
    raise ValueError("not an equation of whole numbers")


def _combined(operator: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
    raise ValueError("only + - * / are allowed")
