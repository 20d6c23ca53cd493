"""Threads for sync functions that wait rather than compute; a hung one costs no place.

Python cannot kill a thread. One whose row has timed out is asked to stop (an exception is raised
in it, which interrupts Python code but not a call in C) and another takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from worker.scoring.clock import Expiry, RowClock


class Interrupted(BaseException):
    """Raised inside a thread whose row has timed out or was cancelled."""


class _Call:
    """One function call: it runs in a thread, its future lives on the loop."""

    __slots__ = ("clock", "done", "function", "given_up", "loop")

    def __init__(self, function: Callable[[], Any], clock: RowClock) -> None:
        self.function, self.clock = function, clock
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self.loop.create_future()
        self.given_up = False

    def settle(self, value: Any, error: BaseException | None) -> None:
        """On the loop: hand the result over, unless nobody waits any more."""
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(value)


class Raised(Exception):
    """Carries a BaseException out of a thread: `error` is what the function raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Worker(threading.Thread):
    def __init__(self, pool: ThreadPool, number: int) -> None:
        super().__init__(name=f"rewardpool-scorer-{number}", daemon=True)
        self._pool = pool
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self.current: _Call | None = None
        self._lock = threading.Lock()

    def take(self, call: _Call | None) -> None:
        """From the loop: run this call next; None ends the thread."""
        self._calls.put(call)

    def interrupt(self, call: _Call) -> None:
        """From the loop: raise in the thread if it still runs this call."""
        with self._lock:
            if self.current is call and self.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.ident), ctypes.py_object(Interrupted)
                )

    def run(self) -> None:
        """Run calls until told to end, or interrupted."""
        with contextlib.suppress(Interrupted):
            while (call := self._calls.get()) is not None:
                self._run_one(call)
                if call.given_up:
                    return

    def _run_one(self, call: _Call) -> None:
        with self._lock:
            self.current = call
        value, error = _called(call)
        with self._lock:
            self.current = None
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            call.loop.call_soon_threadsafe(self._pool.finished, self, call, value, error)


def _called(call: _Call) -> tuple[Any, BaseException | None]:
    try:
        call.clock.start()
        return call.function(), None
    except BaseException as error:
        return None, Raised(error)


class ThreadPool:
    """At most `size` threads at work; started when needed, reused last in first out."""

    def __init__(self, *, size: int) -> None:
        self._size = size
        self._numbers = itertools.count(1)
        self._idle: list[_Worker] = []
        self._running: dict[_Call, _Worker] = {}
        self._waiting: deque[_Call] = deque()

    async def run(self, function: Callable[[], Any], clock: RowClock) -> Any:
        """Run it in a thread. Raises TimeoutError when the clock has run out, or Raised.

        The clock starts when the thread does, not while the call waits for one.
        """
        call = _Call(function, clock)
        self._waiting.append(call)
        self._dispatch()
        expiry = Expiry(clock, lambda: _expire(call.done), notify=call.loop.call_soon_threadsafe)
        try:
            return await call.done
        except (asyncio.CancelledError, TimeoutError):
            self._give_up(call)
            raise
        finally:
            expiry.stop()
            clock.stop()

    def _dispatch(self) -> None:
        while self._waiting and len(self._running) < self._size:
            call = self._waiting.popleft()
            if call.given_up:
                continue
            worker = self._idle.pop() if self._idle else self._started()
            self._running[call] = worker
            worker.take(call)

    def _started(self) -> _Worker:
        worker = _Worker(self, next(self._numbers))
        worker.start()
        return worker

    def _give_up(self, call: _Call) -> None:
        call.given_up = True
        worker = self._running.pop(call, None)
        if worker is not None:
            worker.interrupt(call)
        self._dispatch()

    def finished(self, worker: _Worker, call: _Call, value: Any, error: Any) -> None:
        """On the loop: a thread is free again."""
        if self._running.pop(call, None) is not None:
            self._idle.append(worker)
        call.settle(value, error)
        self._dispatch()

    def close(self) -> None:
        """End idle threads; busy ones end with their call."""
        for call in list(self._running):
            self._give_up(call)
        for worker in self._idle:
            worker.take(None)
        self._idle.clear()


def _expire(done: asyncio.Future[Any]) -> None:
    if not done.done():
        done.set_exception(TimeoutError())
