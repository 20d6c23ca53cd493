"""The promise of one outcome."""

from __future__ import annotations

import asyncio
import concurrent.futures

import pytest

from queue_client import ClientClosed, Outcome, Trajectory
from queue_client.futures import RewardFuture


class Owner:
    def __init__(self) -> None:
        self.told: list[RewardFuture] = []

    def give_up(self, future: RewardFuture) -> None:
        self.told.append(future)


def test_cancelling_tells_the_owner_once_and_wakes_who_waits():
    owner = Owner()
    future = RewardFuture(Trajectory(), owner)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(concurrent.futures.wait, [future], 30)
        assert future.cancel()
        assert future.cancel()
        done, _ = waiting.result(30)
    assert done == {future}
    assert owner.told == [future]


def test_the_first_outcome_counts():
    future = RewardFuture(Trajectory(uid="a"))
    assert future.settle(Outcome.scored(1.0))
    assert not future.settle(Outcome.scored(2.0))
    assert not future.fail(ClientClosed("late"))
    assert not future.cancel()
    assert future.result().reward == 1.0


def test_the_outcome_has_the_trajectorys_uid_whatever_arrives():
    future = RewardFuture(Trajectory(uid="mine"))
    assert future.label(Outcome.scored(1.0, uid="theirs")).uid == "mine"
    assert future.label(Outcome.scored(1.0)).uid == "mine"


async def test_a_future_can_be_awaited_and_cancelled_from_a_loop():
    future = RewardFuture(Trajectory())
    asyncio.get_running_loop().call_soon(future.settle, Outcome.scored(3.0))
    assert (await future).reward == 3.0

    async def wait_for(one: RewardFuture) -> Outcome:
        return await one

    other = RewardFuture(Trajectory())
    task = asyncio.ensure_future(wait_for(other))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert other.cancelled()


def test_an_orphan_answers_though_its_lock_is_held_for_ever():
    future = RewardFuture(Trajectory())
    called: list[object] = []
    future.add_done_callback(called.append)
    with future._condition:
        future.orphan()
        with pytest.raises(ClientClosed, match="before the fork"):
            future.result(0)
    assert not called
