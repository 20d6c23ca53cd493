"""Calls that no message resolves end all the same, with a typed outcome."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from client_consumer import Consumer, Died, rows, until
from client_proxy import Proxy

from queue_client import Kind, NoWorker, Outcome, RewardClient
from queue_client import listeners as listeners_module
from queue_client import reconcile as reconcile_module
from queue_client import sender as sender_module
from queue_client.jobs import job_key, queue_key
from queue_client.protocol import (
    PRODUCER_TTL_S,
    outcomes_key,
    payload_key,
    producer_key,
    reply_key,
)
from queue_client.wire import encode_outcome
from worker.ops.embedded import EmbeddedServer, find_server


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done every few seconds is done at once."""
    monkeypatch.setattr(reconcile_module, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(reconcile_module, "CONFIRM_S", 0.1)
    monkeypatch.setattr(sender_module, "CHORES_EVERY_S", 0.1)
    monkeypatch.setattr(listeners_module, "NO_WORKER_AFTER_S", 0.3)
    monkeypatch.setattr(listeners_module, "LOOK_EVERY_S", 0.1)


def only_job(connection: Any) -> str:
    until(lambda: connection.llen(queue_key("rewards")) == 1)
    return str(connection.lindex(queue_key("rewards"), 0).decode())


def test_lost_messages_are_made_up_for_from_the_outcomes(redis_url, client):
    with Consumer(redis_url) as consumer:
        consumer.mute = True
        outcomes = client.score(rows(50), timeout_s=60)
    assert [outcome.reward for outcome in outcomes] == [float(row) for row in range(50)]


def test_one_lost_message_among_others_is_made_up_for(redis_url, client, connection):
    with Consumer(redis_url) as consumer:

        def score(trajectory):
            consumer.mute = trajectory.uid == "3"
            return Outcome.scored(1.0)

        consumer.score = score
        assert all(outcome.ok for outcome in client.score(rows(6), timeout_s=60))


@pytest.mark.parametrize("status", ["finished", "failed", "stopped", "canceled"])
def test_a_job_that_ended_without_outcomes_ends_its_rows(client, connection, status):
    futures = client.submit(rows(3), timeout_s=60)
    job_id = only_job(connection)
    connection.hset(outcomes_key(job_id), "1", encode_outcome(Outcome.scored(9.0)))
    connection.expire(outcomes_key(job_id), 60)
    connection.hset(job_key(job_id), "status", status)
    outcomes = [future.result(30) for future in futures]
    assert [outcome.kind for outcome in outcomes] == [Kind.WORKER_LOST, None, Kind.WORKER_LOST]
    assert outcomes[1].reward == 9.0
    assert status in outcomes[0].message
    assert outcomes[0].retryable


def test_a_deleted_job_ends_its_rows(client, connection):
    futures = client.submit(rows(3))
    job_id = only_job(connection)
    connection.delete(job_key(job_id), payload_key(job_id), queue_key("rewards"))
    outcomes = [future.result(30) for future in futures]
    assert {outcome.kind for outcome in outcomes} == {Kind.WORKER_LOST}
    assert "gone from Redis" in outcomes[0].message
    assert [outcome.uid for outcome in outcomes] == ["0", "1", "2"]


def test_a_job_that_was_taken_off_its_queue_ends_its_rows(client, connection):
    futures = client.submit(rows(3))
    job_id = only_job(connection)
    connection.delete(queue_key("rewards"))
    assert connection.exists(job_key(job_id))
    outcomes = [future.result(30) for future in futures]
    assert {outcome.kind for outcome in outcomes} == {Kind.WORKER_LOST}
    assert "taken off its queue" in outcomes[0].message


def test_a_job_that_a_worker_is_taking_is_not_lost(client, connection):
    [future] = client.submit(rows(1))
    only_job(connection)
    connection.lmove("rq:queue:rewards", "rq:queue:rewards:intermediate", "LEFT", "RIGHT")
    time.sleep(1)  # several looks
    assert not future.done()


def test_rows_that_a_restarted_server_has_forgotten_are_sent_again():
    binary = find_server(prefer_embedded=True)
    with (
        EmbeddedServer(binary=binary) as first,
        EmbeddedServer(binary=binary) as second,
        Proxy(first.port) as proxy,
        RewardClient(proxy.url) as client,
    ):
        with Consumer(first.url) as consumer:
            [early] = client.submit(rows(1), timeout_s=60)
            assert early.result(30).reward == 0.0
            consumer.score = lambda one: Outcome.scored(1.0)
        with Consumer(first.url, queues=("nothing",)):
            futures = client.submit(rows(40), timeout_s=60)
            until(lambda: len(client._tie.get().flight.jobs()) == 2)
        proxy.turn_to(second.port)
        proxy.cut()
        with Consumer(second.url) as consumer:
            assert [f.result(30).reward for f in futures] == [float(r) for r in range(40)]
            assert len(consumer.scored) == 40


def test_only_open_rows_are_sent_again():
    binary = find_server(prefer_embedded=True)
    with (
        EmbeddedServer(binary=binary) as first,
        EmbeddedServer(binary=binary) as second,
        Proxy(first.port) as proxy,
        RewardClient(proxy.url) as client,
    ):
        futures = client.submit(rows(4), timeout_s=60)
        until(lambda: client._tie.get().flight.jobs())

        def score(trajectory):
            if trajectory.uid == "2":
                raise Died
            return Outcome.scored(1.0)

        with Consumer(first.url, score=score):
            assert [f.result(30).reward for f in futures[:2]] == [1.0, 1.0]
        proxy.turn_to(second.port)
        proxy.cut()
        with Consumer(second.url) as consumer:
            assert [f.result(30).reward for f in futures[2:]] == [2.0, 3.0]
            assert consumer.scored == ["2", "3"]


def test_an_unreadable_outcome_ends_its_row(client, connection):
    futures = client.submit(rows(3))
    job_id = only_job(connection)
    connection.hset(outcomes_key(job_id), "0", b"\x80\x04cos\nsystem\n")
    connection.hset(outcomes_key(job_id), "1", b"x" * ((1 << 20) + 1))
    connection.hset(outcomes_key(job_id), "2", encode_outcome(Outcome.scored(2.0)))
    connection.expire(outcomes_key(job_id), 60)
    outcomes = [future.result(30) for future in futures]
    assert [outcome.kind for outcome in outcomes] == [Kind.WORKER_LOST, Kind.WORKER_LOST, None]


def test_an_end_of_the_whole_job_ends_open_rows_with_its_reason(client, connection):
    futures = client.submit(rows(2))
    job_id = only_job(connection)
    stream = reply_key(client._tie.get().producer)
    connection.xadd(stream, {"job": job_id, "0": encode_outcome(Outcome.scored(1.0))})
    connection.xadd(stream, {"job": job_id, "failed": "bad_input", "message": "no payload"})
    connection.expire(stream, 60)
    assert futures[0].result(30).reward == 1.0
    assert futures[1].result(30).kind == Kind.BAD_INPUT
    assert futures[1].result(0).message == "no payload"


def test_the_first_outcome_of_a_row_counts(client, connection):
    futures = client.submit(rows(2))
    job_id = only_job(connection)
    stream = reply_key(client._tie.get().producer)
    for reward in (1.0, 2.0):
        connection.xadd(stream, {"job": job_id, "0": encode_outcome(Outcome.scored(reward))})
    connection.xadd(stream, {"job": job_id, "1": encode_outcome(Outcome.scored(3.0))})
    connection.expire(stream, 60)
    assert [future.result(30).reward for future in futures] == [1.0, 3.0]
    assert client.metrics()["rewardpool/late"] == 1


def test_a_queue_without_a_worker_is_said(client, connection, caplog):
    with caplog.at_level(logging.WARNING):
        client.submit(rows(3))
        until(lambda: "no worker listens on rewards waiting=3" in caplog.text)
    assert "rewardpool worker rewards" in caplog.text


def test_a_registered_worker_that_is_dead_is_no_worker(client, connection, caplog):
    connection.sadd("rq:workers:rewards", "rq:worker:dead")
    with caplog.at_level(logging.WARNING):
        client.submit(rows(1))
        until(lambda: "no worker listens on rewards" in caplog.text)


def test_suspended_workers_are_said(redis_url, client, connection, caplog):
    connection.set("rq:suspended", 1)
    connection.sadd("rq:workers:rewards", "rq:worker:asleep")
    connection.set("rq:worker:asleep", 1, ex=60)
    with caplog.at_level(logging.WARNING):
        client.submit(rows(1))
        until(lambda: "workers are suspended queue=rewards waiting=1" in caplog.text)


def test_no_worker_is_an_error_by_choice(redis_url, connection):
    with RewardClient(redis_url, no_worker="raise") as client:
        with pytest.raises(NoWorker, match="rewardpool worker rewards"):
            client.score(rows(40), timeout_s=60)
        assert client.in_flight == 0
        until(lambda: not connection.llen(queue_key("rewards")))


def test_a_busy_worker_is_no_missing_worker(redis_url, consumer, caplog):
    with RewardClient(redis_url, no_worker="raise") as client:
        consumer.score = slow
        assert client.score(rows(2), timeout_s=60)[0].ok


def slow(_: object) -> Outcome:
    time.sleep(0.5)
    return Outcome.scored(1.0)


def test_the_sign_of_life_is_refreshed(client, connection, monkeypatch):
    monkeypatch.setattr(sender_module, "BEAT_EVERY_S", 0.1)
    client.submit(rows(1))
    only_job(connection)
    key = producer_key(client._tie.get().producer)
    connection.expire(key, 10)
    until(lambda: connection.ttl(key) > 10)
    assert connection.ttl(key) <= PRODUCER_TTL_S


def test_read_replies_are_dropped_from_the_stream(redis_url, client, connection, monkeypatch):
    monkeypatch.setattr(sender_module, "BEAT_EVERY_S", 0.1)
    with Consumer(redis_url):
        client.score(rows(100), timeout_s=60)
    client.submit(rows(1))  # while something is in flight the producer beats
    stream = reply_key(client._tie.get().producer)
    until(lambda: connection.xlen(stream) <= 1)
