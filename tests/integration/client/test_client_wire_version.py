"""A worker of another release answers: its rows fail by name, everybody else's are scored."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from client_consumer import Consumer, rows, until

from queue_client import Kind, Outcome, RewardClient
from queue_client import reconcile as reconcile_module
from queue_client import sender as sender_module
from queue_client.jobs import queue_key
from queue_client.protocol import outcomes_key, reply_key
from queue_client.wire import encode_outcome

NEWER = msgpack.packb([7, "outcome", {"what": "a later release", "made": "of it"}])


def only_job(connection: Any) -> str:
    until(lambda: connection.llen(queue_key("rewards")) == 1)
    return str(connection.lindex(queue_key("rewards"), 0).decode())


def check_refused(outcome: Outcome) -> None:
    assert (outcome.kind, outcome.reward) == (Kind.WORKER_LOST, None)
    assert "wire version 7, this side reads 1" in outcome.message
    assert not outcome.retryable, "the same worker would answer the same again"


def test_an_answer_of_another_wire_version_fails_its_row_by_name(redis_url, client, connection):
    futures = client.submit(rows(4), timeout_s=60)
    job_id = only_job(connection)
    stream = reply_key(client._tie.get().producer)
    connection.xadd(stream, {"job": job_id, "2": NEWER, "1": encode_outcome(Outcome.scored(9.0))})
    connection.expire(stream, 60)

    check_refused(futures[2].result(30))
    assert futures[2].result(0).uid == "2"
    assert futures[1].result(30).reward == 9.0
    assert not futures[0].done()
    with Consumer(redis_url):
        assert [futures[row].result(60).reward for row in (0, 3)] == [0.0, 3.0]
        assert [one.reward for one in client.score(rows(2), timeout_s=60)] == [0.0, 1.0]
    assert client.in_flight == 0
    assert client.metrics()["rewardpool/connection_losses"] == 0


def test_a_kept_outcome_of_another_wire_version_fails_its_row_by_name(
    redis_url: str, client: RewardClient, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "CHORES_EVERY_S", 0.1)
    monkeypatch.setattr(reconcile_module, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(reconcile_module, "CONFIRM_S", 0.1)
    futures = client.submit(rows(3), timeout_s=60)
    key = outcomes_key(only_job(connection))
    connection.hset(key, mapping={"0": NEWER, "1": encode_outcome(Outcome.scored(9.0))})
    connection.expire(key, 60)

    check_refused(futures[0].result(30))
    assert futures[1].result(30).reward == 9.0
    assert not futures[2].done()
    with Consumer(redis_url):
        assert futures[2].result(60).reward == 2.0
        assert [one.reward for one in client.score(rows(2), timeout_s=60)] == [0.0, 1.0]
    assert client.in_flight == 0
