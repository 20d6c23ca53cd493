"""One connection for the scripts of a loop: sent in the order they were asked for, many at once.

Commands that gather while a trip is under way travel together in the next one, so a thousand
waiters cost one connection and keep their order. The sender runs in a task of its own: a caller
that is cancelled leaves no reply behind for somebody else.
"""

from __future__ import annotations

import asyncio
from typing import Any

import redis

from limiter.scripts import Script

BATCH = 256


class Outbox:
    """Sends scripts over one asyncio client; `run` returns the reply or raises Redis' error."""

    def __init__(self, client: Any, keys: tuple[str, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.client, self.loop = client, loop
        self.trips = 0  # commands sent, for those who count round trips
        self._head = (len(keys), *keys)
        self._waiting: list[tuple[Script, tuple[str | int, ...], asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None

    def run(self, script: Script, args: tuple[str | int, ...]) -> asyncio.Future[Any]:
        """Put a script in line; the future resolves when its reply is there."""
        future: asyncio.Future[Any] = self.loop.create_future()
        self._waiting.append((script, args, future))
        if self._sender is None or self._sender.done():
            self._sender = self.loop.create_task(self._send_all())
        return future

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            try:
                results = await self._trip(batch)
            except asyncio.CancelledError:
                for _, _, future in batch:
                    future.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - the callers get it, whatever it is
                results = [error] * len(batch)
            for (_, _, future), result in zip(batch, results, strict=True):
                _settle(future, result)

    async def _trip(
        self, batch: list[tuple[Script, tuple[str | int, ...], asyncio.Future[Any]]]
    ) -> list[Any]:
        """Send EVALSHA for each; those whose text Redis does not know go again as EVAL."""
        commands = [("EVALSHA", script.sha, *self._head, *args) for script, args, _ in batch]
        results = await self._pipeline(commands)
        unknown = [
            i
            for i, result in enumerate(results)
            if isinstance(result, redis.exceptions.NoScriptError)
        ]
        if unknown:
            again = [("EVAL", batch[i][0].text, *self._head, *batch[i][1]) for i in unknown]
            for i, result in zip(unknown, await self._pipeline(again), strict=True):
                results[i] = result
        return results

    async def _pipeline(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        self.trips += len(commands)
        if len(commands) == 1:
            try:
                return [await self.client.execute_command(*commands[0])]
            except redis.ResponseError as error:
                return [error]
        pipeline = self.client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies

    async def close(self) -> None:
        """End the sender; what still waits is cancelled."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait({self._sender})
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting = []


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
        future.exception()  # whoever waits sees it; an abandoned one is nobody's news
    else:
        future.set_result(result)
