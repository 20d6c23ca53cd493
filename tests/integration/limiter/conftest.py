"""Fixtures for the limiter: limiters that are closed at the end, and a server of Redis' own."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from limiter import Limiter, Limits
from worker.ops.embedded import EmbeddedServer

_numbers = itertools.count()


@pytest.fixture
async def make_limiter(redis_url: str) -> AsyncIterator[Callable[..., Limiter]]:
    """Make limiters on the empty server; they are closed after the test."""
    made: list[Limiter] = []

    def make(*, url: str = redis_url, name: str | None = None, **limits: Any) -> Limiter:
        limiter = Limiter(url, Limits(name=name or f"limit-{next(_numbers)}", **limits))
        made.append(limiter)
        return limiter

    yield make
    for limiter in made:
        await limiter.close()


@pytest.fixture
def redis_server() -> Path:
    """The redis-server on the PATH; skips where there is none."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("no redis-server on the PATH")
    return Path(found)


@pytest.fixture
def own_server() -> Callable[..., EmbeddedServer]:
    """Start servers of this test's own, as context managers."""

    def start(binary: Path | None = None, *extra: str) -> EmbeddedServer:
        return EmbeddedServer(binary=binary, extra_args=extra)

    return start
