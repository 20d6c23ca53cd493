"""The worker's side of its helpers: a fixed number of places, one row at a time in each."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.scoring.clock import Expiry, RowClock
from worker.scoring.failures import ScorerError
from worker.scoring.helpers import frames
from worker.scoring.helpers.link import STOP_TIMEOUT_S, Helper, HelperCrash, NurseryLink

logger = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 120.0
#: Rows after which a helper is replaced: what functions leak is given back.
MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Target:
    """A function for helpers to import: its spec and settings; `key` names both."""

    key: str
    spec: str
    kwargs: Mapping[str, Any]
    limits: Mapping[str, Any] | None = None
    redis_url: str = ""
    awaits: bool = True

    def message(self) -> dict[str, Any]:
        """What a helper needs to load it."""
        return {"op": "load", "key": self.key, "spec": self.spec, "kwargs": dict(self.kwargs),
                "limits": self.limits, "redis_url": self.redis_url}  # fmt: skip


class HelperPool:
    """At most `size` helper processes, started when they are needed and kept warm."""

    def __init__(self, *, size: int, memory_mb: int) -> None:
        self._size, self._memory_mb = size, memory_mb
        self._numbers = itertools.count(1)
        self._idle: list[Helper] = []
        self._busy = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._nursery: NurseryLink | None = None
        self._closed = False

    async def run(self, target: Target, arguments: Mapping[str, Any], clock: RowClock) -> Any:
        """Run one row; returns the helper's reply.

        The clock starts when the row starts, not while it waits for a place or an import.
        Raises TimeoutError when the clock has run out, HelperCrash, or what the reply describes.
        A cancelled call kills its helper.
        """
        message = frames.pack(
            {"op": "run", "key": target.key, "awaits": target.awaits, "arguments": dict(arguments),
             "wait_s": None if clock.wait_left_s() == math.inf else clock.wait_left_s()}
        )  # fmt: skip
        await self._take_place()
        helper = None
        try:
            helper = await self._helper_for(target)
            return await self._run_on(helper, message, clock)
        except BaseException:
            if helper is not None:
                self._kill(helper)
                helper = None
            raise
        finally:
            self._give_place(helper)

    async def _run_on(self, helper: Helper, message: bytes, clock: RowClock) -> Any:
        reply = helper.ask(message)
        clock.start()
        expiry = Expiry(clock, lambda: _expire(reply))
        helper.on_clock = lambda waits: clock.begin_wait() if waits else clock.end_wait()
        try:
            found = await reply
        except HelperCrash:
            raise HelperCrash(await self._obituary(helper)) from None
        finally:
            helper.on_clock = None
            expiry.stop()
            clock.stop()
        helper.served += 1
        if found.get("worn") or helper.served >= MOST_ROWS:
            helper.abort()
        return found

    async def _take_place(self) -> None:
        if self._closed:
            raise HelperCrash("the worker is closing")
        if self._busy < self._size and not self._waiters:
            self._busy += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_place_on()
            else:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(turn)
            raise

    def _give_place(self, helper: Helper | None) -> None:
        if helper is not None and helper.alive:
            self._idle.append(helper)
        self._pass_place_on()

    def _pass_place_on(self) -> None:
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1

    async def _helper_for(self, target: Target) -> Helper:
        """An idle helper that knows the function, any idle one, or a new one."""
        helper = self._from_idle(target.key) or await self._new_helper()
        if target.key not in helper.loaded:
            try:
                await self._load(helper, target)
            except BaseException:
                self._kill(helper)
                raise
            helper.loaded.add(target.key)
        return helper

    async def _load(self, helper: Helper, target: Target) -> None:
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                reply = await helper.ask(frames.pack(target.message()))
        except TimeoutError:
            fault = f"took longer than {LOAD_TIMEOUT_S:g} s"
        except HelperCrash:
            fault = await self._obituary(helper)
        else:
            if "error" not in reply:
                return
            fault = str(reply["error"])
        raise ScorerError(f"loading {target.spec}: {fault}")

    def _from_idle(self, key: str) -> Helper | None:
        self._idle = [each for each in self._idle if each.alive]
        for at in range(len(self._idle) - 1, -1, -1):
            if key in self._idle[at].loaded:
                return self._idle.pop(at)
        return self._idle.pop() if self._idle else None

    async def _new_helper(self) -> Helper:
        nursery = self._nursery
        if nursery is None or not nursery.alive:
            self._nursery = NurseryLink.start()
            if nursery is not None:
                logger.warning("nursery of helper processes died")
                await nursery.close()
        assert self._nursery is not None
        return await self._nursery.fork(next(self._numbers), self._memory_mb)

    def _kill(self, helper: Helper) -> None:
        helper.abort()
        if self._nursery is not None:
            self._nursery.kill(helper)

    async def _obituary(self, helper: Helper) -> str:
        """What became of a helper, from its exit code."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.shield(helper.exited)
        if helper.code is None:
            return "the helper process ended"
        if helper.code < 0:
            name = signal.Signals(-helper.code).name
            return f"the reward function's process was killed by {name}"
        return f"the reward function ended its process with exit code {helper.code}"

    async def close(self) -> None:
        """Kill all helpers and the nursery; nothing is left running."""
        self._closed = True
        for helper in self._idle:
            helper.abort()
        self._idle.clear()
        if self._nursery is not None:
            await self._nursery.close()
            self._nursery = None


def _expire(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(TimeoutError())
