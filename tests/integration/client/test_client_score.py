"""Scoring through a real server: order, identity, sync, asyncio, threads, queues."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import numpy as np
import pytest
import redis
from client_consumer import Consumer, rows, until

from queue_client import (
    ClientClosed,
    Kind,
    Outcome,
    Output,
    RewardClient,
    Trajectory,
    TrajectoryBatch,
)
from queue_client.jobs import job_key, queue_key
from queue_client.protocol import outcomes_key, payload_key, producer_key, reply_key


def test_outcomes_come_in_order_though_workers_finish_in_reverse(consumer, client):
    consumer.backwards = True
    outcomes = client.score(rows(100), timeout_s=60)
    assert [outcome.reward for outcome in outcomes] == [float(row) for row in range(100)]
    assert [outcome.uid for outcome in outcomes] == [str(row) for row in range(100)]


def test_rows_spread_evenly_over_jobs_of_at_most_32(consumer, client):
    client.score(rows(100), timeout_s=60)
    assert sorted(reference.rows for reference in consumer.jobs) == [25, 25, 25, 25]


def test_nothing_to_score_is_nothing_to_do(redis_url):
    with RewardClient(redis_url) as client:
        assert client.score([]) == []
        assert asyncio.run(client.score_async([])) == []
        assert client.submit([]) == []


def test_a_padded_batch_is_scored_like_its_trajectories(consumer, client):
    batch = TrajectoryBatch.pad(rows(3))
    assert [outcome.reward for outcome in client.score(batch, timeout_s=60)] == [0.0, 1.0, 2.0]


def test_what_is_no_trajectory_is_refused_by_place_and_type(client):
    with pytest.raises(TypeError, match=r"trajectories\[1\]: Trajectory expected \(got dict\)"):
        client.score([Trajectory(), {}])
    with pytest.raises(TypeError, match="a list of Trajectory expected"):
        client.submit(Trajectory())


def test_one_malformed_row_fails_alone(consumer, client):
    good = rows(5)
    bad = Trajectory(outputs=[Output(response_ids=["no", "ids"])], uid="bad")
    outcomes = client.score([*good, bad], timeout_s=60)
    assert [outcome.status for outcome in outcomes] == ["scored"] * 5 + ["failed"]
    assert outcomes[-1].kind == Kind.BAD_INPUT
    assert outcomes[-1].uid == "bad"
    assert "response_ids" in outcomes[-1].message


def test_futures_are_ordinary_futures(consumer, client):
    futures = client.submit(rows(10), timeout_s=60)
    done, pending = concurrent.futures.wait(futures, timeout=60)
    assert len(done) == 10
    assert not pending
    assert sorted(f.result().reward for f in concurrent.futures.as_completed(futures)) == list(
        map(float, range(10))
    )


async def test_a_future_can_be_awaited(consumer, client):
    futures = client.submit(rows(3), timeout_s=60)
    assert [(await future).reward for future in futures] == [0.0, 1.0, 2.0]


async def test_as_completed_yields_each_outcome_once(consumer, client):
    found = [outcome.uid async for outcome in client.as_completed(rows(80), timeout_s=60)]
    assert sorted(found, key=int) == [str(row) for row in range(80)]


async def test_as_completed_yields_before_the_slowest_is_done(consumer, client):
    gate = threading.Event()

    def score(trajectory: Trajectory) -> Outcome:
        if trajectory.uid == "39":
            gate.wait(60)
        return Outcome.scored(1.0)

    consumer.score = score
    seen = []
    async for outcome in client.as_completed(rows(40), timeout_s=60):
        seen.append(outcome.uid)
        if len(seen) == 39:
            gate.set()
    assert seen[-1] == "39"


async def test_leaving_as_completed_early_takes_the_rest_back(redis_url, connection):
    with RewardClient(redis_url) as client:
        stream = client.as_completed(rows(64), timeout_s=60)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.to_thread(until, lambda: connection.llen(queue_key("rewards")) == 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await stream.aclose()
        await asyncio.to_thread(until, lambda: not connection.llen(queue_key("rewards")))
        assert client.in_flight == 0


def test_one_client_serves_several_event_loops_one_after_another(consumer, client):
    for _ in range(3):
        [outcome] = asyncio.run(client.score_async(rows(1), timeout_s=60))
        assert outcome.reward == 0.0


def test_threads_and_loops_share_a_client_and_get_only_their_own(consumer, client):
    found: dict[str, list[str | None]] = {}

    def sync(name: str) -> None:
        found[name] = [o.uid for o in client.score(rows(50, prefix=name), timeout_s=60)]

    def loop(name: str) -> None:
        async def run() -> None:
            outcomes = await client.score_async(rows(50, prefix=name), timeout_s=60)
            found[name] = [o.uid for o in outcomes]

        asyncio.run(run())

    threads = [
        threading.Thread(target=target, args=(f"{target.__name__}{number}-",))
        for number in range(4)
        for target in (sync, loop)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 8
    for name, uids in found.items():
        assert uids == [f"{name}{row}" for row in range(50)]


def test_thousands_of_futures_take_two_connections(redis_url, connection):
    with RewardClient(redis_url) as client:
        client.submit(rows(2000))
        until(lambda: connection.llen(queue_key("rewards")) == 63)
        names = [found["name"] for found in connection.client_list()]
        ours = sorted(name for name in names if name.startswith("rewardpool-"))
        assert ours == ["rewardpool-replies", "rewardpool-submit"]


async def test_concurrent_small_calls_share_jobs(consumer, client):
    await client.score_async(rows(1), timeout_s=60)
    consumer.jobs.clear()
    await asyncio.gather(*(client.score_async([row], timeout_s=60) for row in rows(300)))
    assert sum(reference.rows for reference in consumer.jobs) == 300
    assert len(consumer.jobs) < 100


def test_a_call_names_its_queue_and_workers_choose_the_order(redis_url, connection):
    with RewardClient(redis_url) as client:
        slow = client.submit(rows(2, prefix="slow"), queue="later")
        quick = client.submit(rows(2, prefix="quick"), queue="sooner")
        until(lambda: connection.llen(queue_key("later")) and connection.llen(queue_key("sooner")))
        with Consumer(redis_url, queues=("sooner", "later")) as consumer:
            concurrent.futures.wait([*slow, *quick], timeout=60)
        assert consumer.scored == ["quick0", "quick1", "slow0", "slow1"]


def test_ids_arrive_as_they_were(consumer, client):
    found = []
    consumer.score = lambda one: found.append(one) or Outcome.scored(1.0)
    client.score(
        [
            Trajectory(
                outputs=[Output(prompt_ids=[1, 2], response_ids=np.array([3, 4, 5]))],
                ground_truth="42",
                data_source="openai/gsm8k",
                extra_info={"index": 7},
            )
        ],
        timeout_s=60,
    )
    [trajectory] = found
    assert list(trajectory.outputs[0].prompt_ids) == [1, 2]
    assert list(trajectory.outputs[0].response_ids) == [3, 4, 5]
    assert (trajectory.ground_truth, trajectory.data_source) == ("42", "openai/gsm8k")
    assert trajectory.extra_info == {"index": 7}


def test_closing_ends_pending_calls_and_the_sign_of_life(redis_url, connection):
    client = RewardClient(redis_url)
    [future] = client.submit(rows(1))
    producer = client._tie.get().producer
    until(lambda: connection.exists(producer_key(producer)))
    client.close()
    with pytest.raises(ClientClosed):
        future.result(0)
    with pytest.raises(ClientClosed):
        client.submit(rows(1))
    assert not connection.exists(producer_key(producer), reply_key(producer))


def test_an_unused_client_opens_no_connection_and_closes_quietly():
    with RewardClient("redis://127.0.0.1:1/0") as client:
        assert client.in_flight == 0


def test_dropped_clients_keep_their_futures_and_end_their_threads(consumer, redis_url):
    before = {thread.name for thread in threading.enumerate()}
    futures = RewardClient(redis_url).submit(rows(3), timeout_s=60)
    assert [future.result(60).reward for future in futures] == [0.0, 1.0, 2.0]
    threads = [t for t in threading.enumerate() if t.name.startswith("rewardpool-")]
    del futures
    for thread in threads:
        thread.join(30)
    assert {thread.name for thread in threading.enumerate()} <= before


def test_every_key_of_a_call_expires_and_rq_sees_the_job(redis_url, connection: redis.Redis):
    with RewardClient(redis_url) as client:
        client.submit(rows(3), timeout_s=100)
        until(lambda: connection.llen(queue_key("rewards")))
        [job_id] = [found.decode() for found in connection.lrange(queue_key("rewards"), 0, -1)]
        assert 600 < connection.ttl(job_key(job_id)) <= 100 + 1 + 600 + 60
        assert 600 < connection.ttl(payload_key(job_id)) <= 100 + 1 + 600
        assert not connection.exists(outcomes_key(job_id))


def test_a_tool_call_is_a_job_of_its_own(redis_url, connection):
    with RewardClient(redis_url) as client:
        future = client.call_tool("search", {"query": "x"}, timeout_s=30)
        until(lambda: connection.llen(queue_key("rewards")))
        job_id = connection.lpop(queue_key("rewards")).decode()
        from queue_client.protocol import decode_tool_call

        assert decode_tool_call(connection.get(payload_key(job_id))) == (
            "search",
            {"query": "x"},
            30,
        )
        assert not future.done()
