"""A connection's URL leads to the same database with the same login."""

from __future__ import annotations

import pytest
import redis

from worker.pool.redis_url import url_of


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379/0",
        "redis://127.0.0.1:7001/5",
        "redis://[::1]:7001/0",
        "redis://:p%40ss%2Fword@host:6379/0",
        "redis://user:se%20cret@host:6379/2",
        "rediss://user:secret@host:6380/1?ssl_ca_certs=%2Fca.pem",
        "unix:///run/redis.sock?db=3",
        "unix://user:secret@/run/redis.sock?db=0",
    ],
)
def test_a_url_that_is_read_and_written_again_connects_alike(url: str) -> None:
    first = redis.Redis.from_url(url)
    again = url_of(first)
    assert again is not None
    second = redis.Redis.from_url(again)

    assert again.partition("://")[0] == url.partition("://")[0]
    for name in ("host", "port", "db", "username", "password", "path", "ssl_ca_certs"):
        before = first.connection_pool.connection_kwargs.get(name)
        after = second.connection_pool.connection_kwargs.get(name)
        assert (before or None) == (after or None), name


def test_sentinel_has_no_url() -> None:
    master = redis.Sentinel([("localhost", 26379)]).master_for("pool")

    assert url_of(master) is None
