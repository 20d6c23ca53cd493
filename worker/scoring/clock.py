"""A row's two clocks: time inside the reward function, and time spent waiting for limits."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any


class RowClock:
    """Counts run time and waiting time apart; `changed` is called when one gives way to the other.

    The function's time limit holds for run time alone, the wait budget for waiting alone.
    """

    __slots__ = (
        "_running",
        "_since",
        "_waiting",
        "changed",
        "expired_waiting",
        "run_limit_s",
        "run_s",
        "wait_limit_s",
        "wait_s",
    )

    def __init__(self, run_limit_s: float, wait_limit_s: float) -> None:
        self.run_limit_s, self.wait_limit_s = run_limit_s, wait_limit_s
        self.run_s = self.wait_s = 0.0
        self._since: float | None = None
        self._running = False
        self._waiting = 0
        self.changed: Callable[[], None] | None = None
        self.expired_waiting = False  # whether time ran out while the row waited for a limit

    @property
    def is_waiting(self) -> bool:
        """Whether the row waits for a limit just now."""
        return self._waiting > 0

    def start(self) -> None:
        """The function begins to run."""
        self._change(running=True, waiting=self._waiting)

    def stop(self) -> None:
        """The function has ended, and with it whatever it waited for."""
        self._change(running=False, waiting=0)

    def begin_wait(self) -> None:
        """A lease is asked for."""
        self._change(running=self._running, waiting=self._waiting + 1)

    def end_wait(self) -> None:
        """The lease was granted or refused."""
        self._change(running=self._running, waiting=max(0, self._waiting - 1))

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While the block runs a lease is waited for."""
        self.begin_wait()
        try:
            yield
        finally:
            self.end_wait()

    def left_s(self) -> float:
        """Seconds until the clock that runs now is used up; for ever while none runs."""
        if self._since is None:
            return math.inf
        since = time.monotonic() - self._since
        if self._waiting:
            return self.wait_limit_s - self.wait_s - since
        return self.run_limit_s - self.run_s - since

    def wait_left_s(self) -> float:
        """Seconds the row may still wait for limits."""
        return max(0.0, self.left_s() if self._waiting else self.wait_limit_s - self.wait_s)

    def _change(self, *, running: bool, waiting: int) -> None:
        now = time.monotonic()
        if self._since is not None:
            if self._waiting:
                self.wait_s += now - self._since
            else:
                self.run_s += now - self._since
        turned = bool(waiting) != bool(self._waiting) or running != self._running
        self._running, self._waiting = running, waiting
        self._since = now if running or waiting else None
        if turned and self.changed is not None:
            self.changed()


class Expiry:
    """Calls `expire` on the loop once the clock that runs is used up; follows its changes.

    `notify` schedules a callback from wherever the clock changes; directly if absent.
    """

    __slots__ = ("_clock", "_expire", "_handle", "_loop", "_stopped")

    def __init__(
        self,
        clock: RowClock,
        expire: Callable[[], None],
        *,
        notify: Callable[[Callable[[], None]], Any] | None = None,
    ) -> None:
        self._clock, self._expire = clock, expire
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = False
        clock.changed = self._arm if notify is None else lambda: notify(self._arm)
        self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._stopped:
            return
        left = self._clock.left_s()
        if left != math.inf:
            self._handle = self._loop.call_later(max(0.0, left), self._fire)

    def _fire(self) -> None:
        self._clock.expired_waiting = self._clock.is_waiting
        self._expire()

    def stop(self) -> None:
        """No more expiry."""
        self._stopped = True
        self._clock.changed = None
        if self._handle is not None:
            self._handle.cancel()


class Deadline:
    """Ends what runs inside the block once `left_s` are over, by TimeoutError.

    Like `asyncio.timeout`, and it notes whether the row was waiting for a limit just then.
    """

    __slots__ = ("_clock", "_fired", "_handle", "_left_s", "_task")

    def __init__(self, clock: RowClock, left_s: float) -> None:
        self._clock, self._left_s = clock, left_s
        self._fired = False
        self._task: asyncio.Task[Any] | None = None
        self._handle: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        if self._left_s != math.inf:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(max(0.0, self._left_s), self._fire)

    def _fire(self) -> None:
        assert self._task is not None
        self._fired = True
        self._clock.expired_waiting = self._clock.is_waiting
        self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if not self._fired:
            return
        assert self._task is not None
        if self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError
