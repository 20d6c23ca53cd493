"""Fixtures of the pool's tests: workers and producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from pool_server import LastingServer
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


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[LastingServer]:
    """A server that can be stopped and started again."""
    server = LastingServer(tmp_path / "server")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def crew(lasting: LastingServer, tmp_path: Path) -> Iterator[Workers]:
    """Workers on that server."""
    workers = Workers(lasting.url, tmp_path)
    yield workers
    workers.stop()
