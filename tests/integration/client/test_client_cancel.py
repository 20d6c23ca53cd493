"""Taking calls back, and bounds on what is in flight."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest
from client_consumer import Consumer, rows, until

from queue_client import Kind, Outcome, QueueFull, RewardClient
from queue_client import deadlines as deadlines_module
from queue_client.jobs import job_key, queue_key
from queue_client.protocol import cancel_key, payload_key


@pytest.fixture
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool gets no time to say `timeout` itself."""
    monkeypatch.setattr(deadlines_module, "DEADLINE_GRACE_S", 0.1)


def test_cancelling_a_queued_job_takes_it_off_the_queue(client, connection):
    futures = client.submit(rows(3))
    until(lambda: connection.llen(queue_key("rewards")))
    job_id = connection.lindex(queue_key("rewards"), 0).decode()
    assert client.cancel(futures) == 3
    assert [future.result(0).kind for future in futures] == [Kind.CANCELLED] * 3
    assert [future.result(0).uid for future in futures] == ["0", "1", "2"]
    until(lambda: not connection.llen(queue_key("rewards")))
    assert not connection.exists(payload_key(job_id))
    assert connection.ttl(job_key(job_id)) > 0
    assert client.cancel(futures) == 0
    assert client.in_flight == 0


def test_cancelling_some_rows_leaves_the_others(redis_url, client, connection):
    futures = client.submit(rows(4), timeout_s=60)
    until(lambda: connection.llen(queue_key("rewards")))
    job_id = connection.lindex(queue_key("rewards"), 0).decode()
    client.cancel(futures[1:3])
    until(lambda: connection.smembers(cancel_key(job_id)) == {b"1", b"2"})
    with Consumer(redis_url) as consumer:
        assert [futures[0].result(60).reward, futures[3].result(60).reward] == [0.0, 3.0]
        assert consumer.scored == ["0", "3"]
    assert futures[1].result(0).kind == Kind.CANCELLED


def test_cancelling_before_anything_was_sent_sends_nothing(redis_url, connection):
    with RewardClient(redis_url, gather_s=1.0) as client:
        client.submit(rows(1))
        futures = client.submit(rows(3, prefix="late"))
        client.cancel(futures)
        until(lambda: connection.llen(queue_key("rewards")))
        with Consumer(redis_url) as consumer:
            until(lambda: consumer.scored == ["0"])


def test_a_future_cancels_like_any_future(client, connection):
    [first, second] = client.submit(rows(2))
    until(lambda: connection.llen(queue_key("rewards")))
    assert first.cancel()
    assert first.cancel()
    assert first.cancelled()
    done, _ = concurrent.futures.wait([first], timeout=10)
    assert done == {first}
    with pytest.raises(concurrent.futures.CancelledError):
        first.result(0)
    assert client.in_flight == 1
    client.cancel([second])
    assert not second.cancel()


async def test_cancelling_a_task_takes_its_rows_back(redis_url, client, connection):
    task = asyncio.ensure_future(client.score_async(rows(40)))
    await asyncio.to_thread(until, lambda: connection.llen(queue_key("rewards")) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(until, lambda: not connection.llen(queue_key("rewards")))
    assert client.in_flight == 0


@pytest.mark.usefixtures("_short_grace")
def test_a_row_past_its_deadline_is_taken_off_the_pool(client, connection):
    [future] = client.submit(rows(1), timeout_s=0.1)
    until(lambda: connection.llen(queue_key("rewards")))
    outcome = future.result(30)
    assert (outcome.kind, outcome.retryable) == (Kind.TIMEOUT, True)
    assert outcome.wait_s >= 0.1
    until(lambda: not connection.llen(queue_key("rewards")))


@pytest.mark.usefixtures("_short_grace")
def test_deadlines_of_one_call_do_not_touch_another(redis_url, client):
    short = client.submit(rows(2, prefix="short"), timeout_s=0.1)
    long = client.submit(rows(2, prefix="long"), timeout_s=120)
    assert [future.result(30).kind for future in short] == [Kind.TIMEOUT] * 2
    with Consumer(redis_url) as consumer:
        assert all(future.result(60).ok for future in long)
        assert consumer.scored == ["long0", "long1"]


def test_the_deadline_travels_on_redis_clock(redis_url, client, connection, consumer):
    client.score(rows(1), timeout_s=100)
    [reference] = consumer.jobs
    seconds, micros = connection.time()
    now_ms = seconds * 1000 + micros // 1000
    assert 90_000 < reference.deadline_ms - now_ms <= 100_000
    assert 0 <= now_ms - reference.sent_ms < 60_000


def test_too_much_in_flight_is_an_error_by_choice(redis_url):
    with RewardClient(redis_url, max_in_flight=10, when_full="raise") as client:
        futures = client.submit(rows(8))
        with pytest.raises(QueueFull, match="8 trajectories are in flight and 3 more"):
            client.submit(rows(3))
        client.cancel(futures[:1])
        client.submit(rows(3))
        assert client.in_flight == 10
        with pytest.raises(QueueFull, match="max_in_flight=10"):
            client.score(rows(11))


async def test_too_much_in_flight_is_an_error_in_asyncio_too(redis_url):
    with RewardClient(redis_url, max_in_flight=10, when_full="raise") as client:
        with pytest.raises(QueueFull):
            await client.score_async(rows(11))
        assert client.in_flight == 0


def test_too_much_in_flight_waits_by_default(redis_url, consumer):
    most = []
    with RewardClient(redis_url, max_in_flight=10) as client:
        consumer.score = lambda one: most.append(client.in_flight) or Outcome.scored(1.0)
        outcomes = client.score(rows(95), timeout_s=60)
    assert len(outcomes) == 95
    assert all(outcome.ok for outcome in outcomes)
    assert max(most) <= 10


async def test_waiting_for_room_does_not_block_the_loop(redis_url, client, connection):
    with RewardClient(redis_url, max_in_flight=10) as client:
        task = asyncio.ensure_future(client.score_async(rows(30), timeout_s=60))
        await asyncio.to_thread(until, lambda: client.in_flight == 10)
        ticks = 0
        for _ in range(20):
            await asyncio.sleep(0)
            ticks += 1
        assert ticks == 20
        assert not task.done()
        with Consumer(redis_url):
            assert len(await task) == 30


def test_a_deadline_passes_while_a_call_waits_for_room(redis_url):
    with RewardClient(redis_url, max_in_flight=2) as client:
        held = client.submit(rows(2))
        outcomes = client.score(rows(3), timeout_s=0.1)
        assert [outcome.kind for outcome in outcomes] == [Kind.TIMEOUT] * 3
        assert "max_in_flight" in outcomes[0].message
        assert not any(future.done() for future in held)
        assert client.in_flight == 2


def test_closing_wakes_a_call_that_waits_for_room(redis_url):
    from queue_client import ClientClosed

    client = RewardClient(redis_url, max_in_flight=2)
    client.submit(rows(2))
    caught: list[BaseException] = []

    def call() -> None:
        try:
            client.submit(rows(1))
        except ClientClosed as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    until(lambda: client._tie.get().room._waiting)
    client.close()
    thread.join(30)
    assert len(caught) == 1
