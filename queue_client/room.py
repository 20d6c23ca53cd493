"""Back-pressure: how many trajectories may be in flight, and who waits for a place."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError

from queue_client.errors import ClientClosed, QueueFull


class Room:
    """Places for trajectories in flight; whoever waits is served in order of arrival."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._free = places
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def taken(self) -> int:
        """Places in use."""
        return self.places - self._free

    def take(self, wanted: int) -> None:
        """Take places at once, or raise QueueFull and take none."""
        with self._lock:
            if self._waiting or wanted > self._free:
                raise QueueFull(
                    f"{self.taken} trajectories are in flight and {wanted} more would exceed "
                    f"max_in_flight={self.places}"
                )
            self._free -= wanted

    def wait(self, wanted: int, deadline: float | None) -> bool:
        """Take places when there are enough, blocking this thread; False at the deadline."""
        ticket = self._queue(wanted)
        try:
            ticket.result(_left(deadline))
        except TimeoutError:
            return not self._leave(wanted, ticket)
        except BaseException:
            self._return_ticket(wanted, ticket)
            raise
        return True

    async def wait_async(self, wanted: int, deadline: float | None) -> bool:
        """Take places when there are enough, on any event loop; False at the deadline."""
        ticket = self._queue(wanted)
        if ticket.done():
            ticket.result()
            return True
        try:
            await asyncio.wait([asyncio.wrap_future(ticket)], timeout=_left(deadline))
        except BaseException:
            self._return_ticket(wanted, ticket)
            raise
        if not ticket.done() or ticket.cancelled():
            return not self._leave(wanted, ticket)
        ticket.result()
        return True

    def give_back(self, places: int) -> None:
        """Return places and serve whoever waits."""
        with self._lock:
            self._free += places
            served = self._serve()
        for ticket in served:
            _grant(ticket)

    def close(self) -> None:
        """Nobody waits any longer: they get ClientClosed."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for _, ticket in waiting:
            if not ticket.done():
                ticket.set_exception(ClientClosed("the client was closed while a call waited"))

    def _queue(self, wanted: int) -> Future[None]:
        ticket: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            self._waiting.append((wanted, ticket))
            served = self._serve()
        for granted in served:
            _grant(granted)
        return ticket

    def _serve(self) -> list[Future[None]]:
        served = []
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, ticket = self._waiting.popleft()
            self._free -= wanted
            served.append(ticket)
        return served

    def _leave(self, wanted: int, ticket: Future[None]) -> bool:
        """Step out of the line; False if the places were granted in the same moment."""
        with self._lock:
            entry = (wanted, ticket)
            if entry not in self._waiting:
                return False
            self._waiting.remove(entry)
            served = self._serve()
        for granted in served:
            _grant(granted)
        return True

    def _return_ticket(self, wanted: int, ticket: Future[None]) -> None:
        if not self._leave(wanted, ticket) and not self._closed:
            self.give_back(wanted)


def _grant(ticket: Future[None]) -> None:
    try:
        ticket.set_result(None)
    except InvalidStateError:
        return  # given up in the same moment: `_return_ticket` finds it granted


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
