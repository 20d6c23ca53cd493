"""How the asyncio face reaches Redis: scripts sent in order, retried until the caller's deadline.

A command whose reply was lost is sent again with the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Coroutine
from typing import Any

import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from limiter import faults, replies, scripts
from limiter.errors import LimiterClosed, LimiterUnavailable
from limiter.keys import Keys
from limiter.limits import Limits
from limiter.outbox import Outbox

logger = logging.getLogger("limiter")

CONNECTIONS = 2  # scripts share one; history reads on the other
SOCKET_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3.0
GRACE_S = 1.0  # a caller that does not wait still gives Redis this long to answer
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


def new_id() -> str:
    """Return an id for one attempt or one owner."""
    return uuid.uuid4().hex


def who() -> str:
    """Return who we are, for the record of settings: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def redis_client(url: str, connections: int) -> Any:
    """Return an asyncio client with a bounded pool, without retries of its own."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=None,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis(connection_pool=pool)


class Transport:
    """The scripts of one limit on one event loop."""

    def __init__(self, url: str, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.url, self.limits, self.loop = url, limits, loop
        self.keys = Keys.of(limits.name)
        self.client = redis_client(url, CONNECTIONS)
        self.outbox = Outbox(self.client, self.keys.all, loop)
        self.closed = False
        self._declared = False
        self._declaring: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something to its end whatever becomes of the caller."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits sees it; an abandoned one is nobody's news

    async def call(self, verb: str, *args: str | int, deadline: float | None) -> Any:
        """Run a script until it answers or `deadline` (loop time, None for ever) has passed.

        Raises LimiterUnavailable when it has, LimiterClosed after `close`.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            reply, fault = await self._try(verb, args, deadline)
            if fault is None:
                return reply
            if not faults.passes(fault):
                if isinstance(fault, redis.RedisError):
                    raise LimiterUnavailable(self.limits.name, faults.reason(fault)) from fault
                raise fault
            left_s = pause_s if deadline is None else deadline - self.loop.time()
            if left_s <= 0:
                raise LimiterUnavailable(self.limits.name, faults.reason(fault)) from fault
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def _try(
        self, verb: str, args: tuple[str | int, ...], deadline: float | None
    ) -> tuple[Any, BaseException | None]:
        if self.closed:
            raise LimiterClosed(f"{self.limits.name}: the limiter is closed")
        task = self.spawn(self._declared_send(verb, args))
        left_s = None if deadline is None else max(GRACE_S, deadline - self.loop.time())
        done, _ = await asyncio.wait({task}, timeout=left_s)
        if not done:
            raise LimiterUnavailable(self.limits.name, "no answer in time")
        if task.cancelled():
            raise LimiterClosed(f"{self.limits.name}: the limiter was closed")
        fault = task.exception()
        return (task.result(), None) if fault is None else (None, fault)

    async def _declared_send(self, verb: str, args: tuple[str | int, ...]) -> Any:
        if not self._declared:
            await self._declare()
        reply = await self.send(verb, *args)
        if replies.lacks_settings(reply):
            self._declared = False
            await self._declare()
            reply = await self.send(verb, *args)
        return reply

    async def _declare(self) -> None:
        """Write our limits unless the same were declared before; once for all who wait for it."""
        if self._declaring is None or self._declaring.done():
            self._declaring = self.spawn(self._send_declaration())
        await asyncio.wait({self._declaring})
        self._declaring.result()

    async def _send_declaration(self) -> None:
        reply = await self.send("configure", "declare", who(), -1, *self.limits.to_wire(), "-")
        if int(reply[0]) == 1:
            logger.info("limits declared limit=%s by=%s", self.limits.name, who())
        self._declared = True

    async def send(self, verb: str, *args: str | int) -> Any:
        """Run a script once; its text travels only when Redis does not know it."""
        return await self.outbox.run(scripts.load(verb), args)

    async def finish(self, timeout_s: float) -> None:
        """Wait for what is still under way, then end it and close the connections."""
        pending = [task for task in self._tasks if task is not asyncio.current_task()]
        if pending:
            await asyncio.wait(pending, timeout=timeout_s)
        self.closed = True
        pending = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=1)
        await self.outbox.close()
        await self.client.aclose()
        await self.client.connection_pool.disconnect()
