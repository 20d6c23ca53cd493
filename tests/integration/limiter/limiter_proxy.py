"""A TCP proxy in front of Redis that drops the reply of every n-th script and cuts the line."""

from __future__ import annotations

import asyncio
import contextlib


class DroppingProxy:
    """Forwards whole replies; of every n-th request with a script it forwards none and hangs up."""

    def __init__(self, port: int, every: int) -> None:
        self.target, self.every = port, every
        self.port = 0
        self.dropped = self._seen = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"redis://127.0.0.1:{self.port}/0"

    async def __aenter__(self) -> DroppingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        down = asyncio.create_task(self._forward(up_reader, writer))
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 20):
                    drop = self._counts(data)
                    if drop:
                        down.cancel()
                        await asyncio.wait({down})
                    up_writer.write(data)
                    await up_writer.drain()
                    if drop:  # the server has run it; the client never hears of it
                        await up_reader.read(1 << 16)
                        break
        finally:
            down.cancel()
            await asyncio.wait({down})
            for one in (writer, up_writer):
                one.close()
            self._tasks.discard(task)

    def _counts(self, data: bytes) -> bool:
        if b"EVAL" not in data:
            return False
        self._seen += 1
        if self._seen % self.every:
            return False
        self.dropped += 1
        return True

    @staticmethod
    async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                writer.write(data)
                await writer.drain()
