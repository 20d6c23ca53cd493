"""A client with default settings, and a consumer for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_consumer import Consumer

from queue_client import RewardClient


@pytest.fixture
def consumer(redis_url: str) -> Iterator[Consumer]:
    """A consumer on the queue `rewards` which scores texts by their length."""
    with Consumer(redis_url) as running:
        yield running


@pytest.fixture
def client(redis_url: str) -> Iterator[RewardClient]:
    """A client with default settings."""
    with RewardClient(redis_url) as made:
        yield made
