"""Loopback judges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from judge_stub import JudgeStub


@pytest.fixture
def judge() -> Iterator[JudgeStub]:
    """One judge that says 1 to everything until it is told otherwise."""
    with closing(JudgeStub()) as stub:
        yield stub


@pytest.fixture
def judges() -> Iterator[list[JudgeStub]]:
    """Three judges."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(JudgeStub())) for _ in range(3)]
