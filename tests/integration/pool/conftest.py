"""Workers and producers for the pool's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

sys.path.insert(0, str(Path(__file__).parent))

from pool_support import Producer, Workers


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    """Starts `rq worker` processes; ends them afterwards."""
    started = Workers(redis_url, tmp_path)
    yield started
    started.stop()


@pytest.fixture
def producer(connection: redis.Redis) -> Producer:
    """A producer on the queue `rewards`."""
    return Producer(connection)


@pytest.fixture
def new_producer(connection: redis.Redis) -> Callable[[str], Producer]:
    """Makes producers on any queue."""
    return lambda queue="rewards": Producer(connection, queue)
