"""Places for trajectories in flight."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from queue_client import ClientClosed, QueueFull
from queue_client.room import Room


def waiting(room: Room, count: int) -> None:
    end = time.monotonic() + 30
    while len(room._waiting) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_places_are_taken_all_or_none():
    room = Room(3)
    room.take(2)
    with pytest.raises(QueueFull):
        room.take(2)
    assert room.taken == 2
    room.take(1)


def test_waiters_are_served_in_order_of_arrival_large_ones_too():
    room = Room(2)
    room.take(2)
    served: list[int] = []

    def take(wanted: int) -> None:
        room.wait(wanted, None)
        served.append(wanted)

    threads = []
    for number, wanted in enumerate((2, 1)):
        thread = threading.Thread(target=take, args=(wanted,))
        thread.start()
        threads.append(thread)
        waiting(room, number + 1)
    room.give_back(1)
    assert room.taken == 1
    assert not served  # the large one is first, and one place is not enough for it
    room.give_back(1)
    threads[0].join(30)
    assert served == [2]
    room.give_back(1)
    threads[1].join(30)
    assert served == [2, 1]


def test_a_deadline_leaves_the_line_and_lets_the_next_one_through():
    room = Room(2)
    room.take(1)
    assert room.wait(2, time.monotonic() + 0.05) is False
    assert room.wait(1, time.monotonic() + 30) is True
    assert room.taken == 2


def test_nobody_overtakes_who_waits():
    room = Room(2)
    room.take(2)
    thread = threading.Thread(target=room.wait, args=(2, None))
    thread.start()
    waiting(room, 1)
    room.give_back(1)
    with pytest.raises(QueueFull):
        room.take(1)
    room.give_back(1)
    thread.join(30)
    assert room.taken == 2


async def test_cancelled_waiting_gives_everything_back():
    room = Room(1)
    room.take(1)
    task = asyncio.ensure_future(room.wait_async(1, None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    room.give_back(1)
    assert room.taken == 0
    assert await room.wait_async(1, None) is True


async def test_a_grant_in_the_moment_of_the_cancel_is_given_back():
    room = Room(1)
    room.take(1)
    task = asyncio.ensure_future(room.wait_async(1, None))
    await asyncio.sleep(0)
    room.give_back(1)  # granted, the task does not know yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert room.taken == 0


async def test_waiting_on_a_loop_ends_at_the_deadline():
    room = Room(1)
    room.take(1)
    assert await room.wait_async(1, time.monotonic() + 0.05) is False
    assert not room._waiting


def test_closing_wakes_who_waits_and_refuses_who_comes():
    room = Room(1)
    room.take(1)
    caught: list[type[BaseException]] = []

    def wait() -> None:
        try:
            room.wait(1, None)
        except ClientClosed as error:
            caught.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting(room, 1)
    room.close()
    thread.join(30)
    assert caught == [ClientClosed]
    with pytest.raises(ClientClosed):
        room.wait(1, None)
