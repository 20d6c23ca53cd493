"""Connections to the nursery and to each helper, on the worker's loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from worker.scoring.failures import ScorerError
from worker.scoring.helpers import frames
from worker.scoring.helpers.nursery import ONE_THREAD

STOP_TIMEOUT_S = 5.0


class HelperCrash(ScorerError):
    """The helper process ended while it ran the row."""


class Helper(asyncio.Protocol):
    """One helper process: its end of the socket pair, and the call in flight."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.loaded: set[str] = set()
        self.served = 0
        self.code: int | None = None
        self.exited = asyncio.get_running_loop().create_future()
        self.on_clock: Callable[[bool], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._reply: asyncio.Future[dict[str, Any]] | None = None

    @property
    def alive(self) -> bool:
        """Whether it can take a call."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours now."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Put messages together; a helper that sends nonsense is cut off."""
        self._buffer += data
        try:
            while (message := self._next()) is not None:
                self._accept(message)
        except (frames.FrameError, KeyError, TypeError):
            self.abort()

    def _next(self) -> Any:
        if len(self._buffer) < frames.HEADER.size:
            return None
        (size,) = frames.HEADER.unpack_from(self._buffer)
        end = frames.HEADER.size + size
        if size > frames.MAX_REPLY:
            raise frames.FrameError(f"a frame of {size} bytes")
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            message = frames.unpack(view[frames.HEADER.size : end])
        del self._buffer[:end]
        return message

    def _accept(self, message: dict[str, Any]) -> None:
        if "clock" in message:
            if self.on_clock is not None:
                self.on_clock(message["clock"] == "wait")
        elif self._reply is not None and not self._reply.done():
            self._reply.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended, or was ended."""
        self._transport = None
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(HelperCrash("the helper process ended"))

    def ask(self, message: bytes) -> asyncio.Future[dict[str, Any]]:
        """Send one message; the future has the reply, or HelperCrash."""
        self._reply = asyncio.get_running_loop().create_future()
        if self._transport is None:
            self._reply.set_exception(HelperCrash("the helper process ended"))
        else:
            self._transport.write(message)
        return self._reply

    def abort(self) -> None:
        """Close our end."""
        if self._transport is not None:
            self._transport.abort()


class NurseryLink:
    """The nursery's process and the control socket to it."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.alive = True
        self._process, self._control = process, control
        self._loop = asyncio.get_running_loop()
        self._helpers: dict[int, Helper] = {}
        self._received = bytearray()
        self._outbox: deque[tuple[bytes, socket.socket | None]] = deque()
        self._loop.add_reader(control, self._read)

    @classmethod
    def start(cls) -> NurseryLink:
        """Start the nursery; it takes commands at once and obeys in about 0.3 s."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "worker.scoring.helpers.nursery", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env={ONE_THREAD: "1", **os.environ},
                start_new_session=True,
            )
        ours.setblocking(False)
        link = cls(process, ours)
        link._send({"op": "path", "path": [each for each in sys.path if isinstance(each, str)]})
        return link

    async def fork(self, number: int, memory_mb: int) -> Helper:
        """Ask for one helper and connect to it; it takes messages before it runs."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        helper = Helper(number)
        self._helpers[number] = helper
        await self._loop.connect_accepted_socket(lambda: helper, ours)
        self._send({"op": "start", "helper": number, "memory_mb": memory_mb}, theirs)
        return helper

    def kill(self, helper: Helper) -> None:
        """Kill a helper with its process group."""
        if helper.number in self._helpers:
            self._send({"op": "kill", "helper": helper.number})

    def _send(self, command: dict[str, Any], descriptor: socket.socket | None = None) -> None:
        self._outbox.append((frames.pack(command), descriptor))
        self._write()

    def _write(self) -> None:
        """Send what waits; a full socket (all but impossible) is tried again when it has room."""
        try:
            while self._outbox and self.alive:
                self._write_one()
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._control, self._write)
        except OSError:
            self._lost()
        else:
            self._loop.remove_writer(self._control)

    def _write_one(self) -> None:
        message, descriptor = self._outbox[0]
        if descriptor is None:
            sent = self._control.send(message)
        else:
            sent = socket.send_fds(self._control, [message], [descriptor.fileno()])
            descriptor.close()
        self._outbox.popleft()
        if sent < len(message):
            self._outbox.appendleft((message[sent:], None))

    def _read(self) -> None:
        """Reports: who ended, and how."""
        try:
            data = self._control.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._received += data
        while len(self._received) >= frames.HEADER.size:
            end = frames.HEADER.size + frames.HEADER.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            report = frames.unpack(bytes(self._received[frames.HEADER.size : end]))
            del self._received[:end]
            self._ended(report["helper"], report["code"])

    def _ended(self, number: int, code: int | None) -> None:
        helper = self._helpers.pop(number, None)
        if helper is not None:
            helper.code = code
            helper.abort()
            if not helper.exited.done():
                helper.exited.set_result(None)

    def _lost(self) -> None:
        """The nursery is gone and its helpers with it; the next call starts another."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        for _, descriptor in self._outbox:
            if descriptor is not None:
                descriptor.close()
        self._outbox.clear()
        for number in list(self._helpers):
            self._ended(number, None)

    async def close(self) -> None:
        """End the nursery; it kills every helper on its way out."""
        self._lost()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await self._loop.run_in_executor(None, self._process.wait, STOP_TIMEOUT_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
