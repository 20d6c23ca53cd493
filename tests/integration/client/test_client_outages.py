"""Connections that break, servers that are away, replies that never arrive."""

from __future__ import annotations

import contextlib
import logging
import socket
import time

import pytest
import redis
from client_consumer import Consumer, rows, until
from client_proxy import Proxy

from queue_client import Kind, Output, PoolUnavailable, RewardClient, Trajectory
from queue_client.jobs import queue_key
from worker.ops.embedded import EmbeddedServer, find_server


def test_a_refused_connection_is_a_clear_error_without_the_password():
    client = RewardClient("redis://:secret@127.0.0.1:1/0")
    with pytest.raises(PoolUnavailable, match=r"redis://127\.0\.0\.1:1/0") as caught:
        client.score(rows(1))
    assert "secret" not in str(caught.value)


def test_a_server_that_accepts_and_says_nothing_is_an_error_within_the_connect_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        client = RewardClient(url, connect_timeout_s=0.3)
        began = time.monotonic()
        with pytest.raises(PoolUnavailable):
            client.submit(rows(1))
        assert time.monotonic() - began < 5


async def test_an_unreachable_server_is_an_error_in_asyncio_too():
    client = RewardClient("redis://127.0.0.1:1/0")
    with pytest.raises(PoolUnavailable):
        await client.score_async(rows(1))
    with pytest.raises(PoolUnavailable):
        async for _ in client.as_completed(rows(1)):
            pass


def test_a_client_recovers_after_its_first_call_found_nothing(server, redis_url):
    with Proxy(server.port) as proxy, Consumer(redis_url), RewardClient(proxy.url) as client:
        proxy.refusing = True
        with pytest.raises(PoolUnavailable):
            client.score(rows(1))
        proxy.refusing = False
        assert [outcome.reward for outcome in client.score(rows(2), timeout_s=60)] == [0.0, 1.0]


def test_a_lost_reply_of_the_enqueue_scores_once(server, redis_url):
    with Proxy(server.port) as proxy, Consumer(redis_url) as consumer:
        with RewardClient(proxy.url) as client:
            client.score(rows(1), timeout_s=60)  # the script is known from here on
            consumer.scored.clear()
            proxy.lose_reply_of = b"EVALSHA"
            outcomes = client.score(rows(40, prefix="once"), timeout_s=60)
        assert proxy.lost == 1
        assert sorted(consumer.scored) == sorted(f"once{row}" for row in range(40))
        assert [outcome.reward for outcome in outcomes] == [float(row) for row in range(40)]


def test_connections_that_are_killed_lose_nothing(redis_url, connection, client):
    futures = client.submit(rows(100), timeout_s=60)
    until(lambda: connection.llen(queue_key("rewards")) == 4)

    def ours():
        return [c["id"] for c in connection.client_list() if c["name"].startswith("rewardpool-")]

    until(lambda: len(ours()) == 2)  # the reader connects beside the sender, not before it
    for number in ours():
        assert connection.client_kill_filter(_id=number) == 1
    more = client.submit(rows(100), timeout_s=60)
    with Consumer(redis_url) as consumer:
        assert [f.result(60).reward for f in futures] == [float(row) for row in range(100)]
        assert [f.result(60).reward for f in more] == [float(row) for row in range(100)]
        assert len(consumer.scored) == 200


def test_calls_made_while_redis_is_away_are_sent_when_it_is_back(server, redis_url):
    with Proxy(server.port) as proxy, Consumer(redis_url), RewardClient(proxy.url) as client:
        client.score(rows(1), timeout_s=60)
        proxy.refusing = True
        proxy.cut()
        futures = client.submit(rows(50), timeout_s=60)
        time.sleep(0.5)
        assert not any(future.done() for future in futures)
        proxy.refusing = False
        assert [f.result(60).reward for f in futures] == [float(row) for row in range(50)]


def test_an_outage_beyond_what_is_borne_ends_in_flight_calls(server, redis_url):
    with Proxy(server.port) as proxy, RewardClient(proxy.url, outage_s=0.5) as client:
        sent = client.submit(rows(2))
        until(lambda: redis.Redis.from_url(redis_url).llen(queue_key("rewards")))
        proxy.refusing = True
        proxy.cut()
        unsent = client.submit(rows(2))
        for future in [*sent, *unsent]:
            with pytest.raises(PoolUnavailable, match=r"127\.0\.0\.1"):
                future.result(30)
        assert client.in_flight == 0


def test_a_deadline_ends_a_call_whatever_redis_does(server, redis_url):
    with Proxy(server.port) as proxy, RewardClient(proxy.url) as client:
        client.submit(rows(1))
        proxy.refusing = True
        proxy.cut()
        outcomes = client.score(rows(3), timeout_s=0.2)
        assert [outcome.kind for outcome in outcomes] == [Kind.TIMEOUT] * 3


def test_waiting_past_the_socket_timeout_breaks_nothing(redis_url, caplog):
    """redis-py gives up a read after the socket's timeout; a blocking read stays below it."""
    with RewardClient(redis_url + "?socket_timeout=0.5") as client:
        [future] = client.submit(rows(1), timeout_s=60)
        time.sleep(1.2)
        with Consumer(redis_url):
            assert future.result(60).reward == 0.0
        assert client.metrics()["rewardpool/connection_losses"] == 0
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING and "lost" in r.message]


def test_a_url_that_asks_for_text_changes_nothing(redis_url, consumer):
    with RewardClient(redis_url + "?decode_responses=true") as client:
        assert client.score(rows(2), timeout_s=60)[1].reward == 1.0


def test_full_memory_is_said_at_once():
    with (
        EmbeddedServer(
            binary=find_server(prefer_embedded=True), extra_args=("--maxmemory", "3mb")
        ) as small,
        RewardClient(small.url) as client,
        redis.Redis.from_url(small.url) as connection,
    ):
        client._tie.get()
        with contextlib.suppress(redis.exceptions.OutOfMemoryError):
            for number in range(1000):
                connection.set(f"filler{number}", b"x" * 100_000, ex=60)
        [future] = client.submit([Trajectory(outputs=[Output(text="x" * 400_000)])])
        with pytest.raises(PoolUnavailable, match="maxmemory"):
            future.result(30)


def test_a_forgotten_script_is_loaded_again(consumer, client, connection):
    client.score(rows(1), timeout_s=60)
    connection.script_flush()
    assert client.score(rows(2), timeout_s=60)[1].reward == 1.0


def test_connections_may_be_made_in_another_way(redis_url, consumer):
    """Sentinel, a provider of credentials: whatever returns a client with the options given."""
    made: list[dict[str, object]] = []

    def connect(**options: object) -> redis.Redis:
        made.append(options)
        return redis.Redis.from_url(redis_url, **options)

    with RewardClient("redis://mymaster/0", connect=connect) as client:
        assert client.score(rows(2), timeout_s=60)[1].reward == 1.0
    assert {options["client_name"] for options in made} == {
        "rewardpool-greet",
        "rewardpool-submit",
        "rewardpool-replies",
    }
