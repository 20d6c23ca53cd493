"""A ticket: one acquire of the asyncio face, from its first byte to its grant."""

from __future__ import annotations

import asyncio
import math

from limiter.transport import new_id


class Ticket:
    """Waits for one grant; the future holds the fence, or why there is none."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tokens: int,
        timeout_s: float | None,
        lease_ms: int,
        head_start_ms: int,
    ) -> None:
        self.id = new_id()
        self.tokens, self.timeout_s = tokens, timeout_s
        self.lease_ms, self.head_start_ms = lease_ms, head_start_ms
        self.loop = loop
        self.deadline = None if timeout_s is None else loop.time() + timeout_s
        self.future: asyncio.Future[int] = loop.create_future()
        self.asked = False  # Redis may know our id
        self.layers = 0

    def left_s(self) -> float | None:
        """Seconds until the caller's deadline; None is for ever."""
        return None if self.deadline is None else max(0.0, self.deadline - self.loop.time())

    def wait_ms(self) -> int:
        """How long to stand in line: 0 not at all, -1 for ever."""
        if self.timeout_s == 0:
            return 0
        left_s = self.left_s()
        return -1 if left_s is None else max(1, math.ceil(left_s * 1000))

    def grant(self, fence: int) -> None:
        """Hand over the lease; a second grant of the same id is the same lease."""
        if not self.future.done():
            self.future.set_result(fence)

    def fail(self, error: Exception) -> None:
        """End the wait with an error."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # the caller may have gone: nobody else's news
