"""The reader of one owner's mailbox: blocks on a connection of its own, two seconds at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import redis

from limiter import faults
from limiter.replies import Letter, read_letter
from limiter.transport import redis_client

BLOCK_S = 2
LETTERS = 64
PAUSE_S = 0.2


class Mailbox:
    """Reads letters; `broken` says that the last read failed, so some may be lost."""

    def __init__(self, url: str, key: str) -> None:
        self._client: Any = redis_client(url, 1)
        self._key = key
        self._many = True  # BLMPOP, from Redis 7 on, takes many letters at once
        self.broken = False
        self.trips = 0

    async def read(self) -> list[Letter]:
        """Return the letters there are, or none after two seconds."""
        self.trips += 1
        try:
            letters = await self._pop()
        except redis.ResponseError as error:
            if self._many and "unknown command" in str(error).lower():
                self._many = False
                return []
            return await self._pause()
        except Exception as error:
            if not faults.passes(error):
                raise
            return await self._pause()
        self.broken = False
        return [read_letter(letter) for letter in letters]

    async def _pop(self) -> list[Any]:
        if self._many:
            command = ("BLMPOP", BLOCK_S, 1, self._key, "LEFT", "COUNT", LETTERS)
            reply = await self._client.execute_command(*command)
            return list(reply[1]) if reply else []
        reply = await self._client.execute_command("BLPOP", self._key, BLOCK_S)
        return [reply[1]] if reply else []

    async def _pause(self) -> list[Letter]:
        self.broken = True
        await asyncio.sleep(PAUSE_S)
        return []

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()
