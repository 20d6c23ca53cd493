"""From threads to an event loop: futures as they are done, with few wake-ups."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future

from queue_client.futures import RewardFuture
from queue_client.outcome import Outcome


class Arrivals:
    """Collects done futures for one coroutine; however many arrive at once, the loop wakes once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[RewardFuture] = deque()
        self._event = asyncio.Event()
        self._error: BaseException | None = None

    def watch(self, future: RewardFuture) -> None:
        """Have the future reported when it is done."""
        future.add_done_callback(self._note)

    def fail(self, error: BaseException) -> None:
        """Make whoever waits raise this; called on the loop."""
        self._error = error
        self._event.set()

    async def next(self) -> list[RewardFuture]:
        """Wait for at least one future; return all that have arrived, in order of arrival."""
        while not self._arrived:
            if self._error is not None:
                raise self._error
            await self._event.wait()
            self._event.clear()
        count = len(self._arrived)
        return [self._arrived.popleft() for _ in range(count)]

    def _note(self, future: Future[Outcome]) -> None:
        assert isinstance(future, RewardFuture)
        first = not self._arrived
        self._arrived.append(future)
        if first:
            try:
                self._loop.call_soon_threadsafe(self._event.set)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
