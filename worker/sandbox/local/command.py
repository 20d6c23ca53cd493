"""One running command: its output as it comes, its bounds, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from worker.sandbox.local.bounds import MIB, Bounds
from worker.sandbox.local.tree import children, descendants, exact_bytes, resident_bytes
from worker.sandbox.program import CommandResult

_CHUNK = 64 * 1024
_WATCH_S = 0.1
_KILL_WAIT_S = 5.0


@dataclass
class Command:
    """One running command: its output as it comes, and why it was stopped, if it was."""

    process: Process
    bounds: Bounds
    memory_mb: int
    wall: str
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    stdout_bytes: int = 0
    stopped: str = ""

    async def finish(self, stdin: bytes, time_s: float) -> None:
        """Wait for the end, or bring it about; no process is left, whatever happens."""
        work = [
            asyncio.ensure_future(self._feed(stdin)),
            asyncio.ensure_future(self._collect(self.process.stdout, self.stdout)),
            asyncio.ensure_future(self._collect(self.process.stderr, self.stderr)),
        ]
        watch = asyncio.ensure_future(self._watch())
        try:
            async with asyncio.timeout(time_s):
                await self.process.wait()
        except TimeoutError:
            self.stop("time")
        finally:
            watch.cancel()
            self._kill()
            await self._end(asyncio.gather(watch, *work, return_exceptions=True))

    async def _end(self, work: asyncio.Future[Any]) -> None:
        """Wait until the process is gone, however often this is cancelled meanwhile."""
        ending = asyncio.ensure_future(self._gone(work))
        cancelled = False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _gone(self, work: asyncio.Future[Any]) -> None:
        try:
            async with asyncio.timeout(_KILL_WAIT_S):
                await self.process.wait()
        except TimeoutError:
            self._kill(at_once=True)
            await self.process.wait()
        await asyncio.wait([work], timeout=_KILL_WAIT_S)
        work.cancel()  # what escaped may hold the pipes for ever

    def stop(self, reason: str) -> None:
        """End the program; the first reason is the one that counts."""
        self.stopped = self.stopped or reason
        self._kill()

    def result(self, took_s: float, code: int | None) -> CommandResult:
        """Return what came of it, in the server's words."""
        stderr = self.stderr.decode("utf-8", "replace")
        finished, out_of_time = "Finished", "TimeLimitExceeded"
        if self.stopped in {"memory", "processes"}:
            status, code = finished, 137
            stderr += f"\nstopped: the program used more {self.stopped} than its limit\n"
        elif self.stopped:
            status, code = out_of_time, None
        elif code is None and self.wall == "none" and (self.process.returncode or 0) < 0:
            status, code = finished, 128 - (self.process.returncode or 0)  # it killed its launcher
        else:
            status = finished if code is not None else "Error"
        return CommandResult(
            status=status,
            execution_time=took_s,
            return_code=code,
            stdout=self.stdout.decode("utf-8", "replace"),
            stderr=stderr,
            stdout_bytes=self.stdout_bytes,
            flooded=self.stopped == "output",
        )

    async def _feed(self, stdin: bytes) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        with suppress(ConnectionError):
            pipe.write(stdin)
            await pipe.drain()
        pipe.close()
        with suppress(ConnectionError):
            await pipe.wait_closed()

    async def _collect(self, pipe: asyncio.StreamReader | None, kept: bytearray) -> None:
        assert pipe is not None
        most = self.bounds.output_mb * MIB
        while chunk := await pipe.read(_CHUNK):
            if kept is self.stdout:
                self.stdout_bytes += len(chunk)
            kept += chunk[: most - len(kept)]
            if len(kept) >= most:
                self.stop("output")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            pids = descendants(self.process.pid)
            if len(pids) > self.bounds.processes + 4:  # the wall's own processes
                self.stop("processes")
            elif _over(pids, self.memory_mb * MIB):
                self.stop("memory")

    def _kill(self, *, at_once: bool = False) -> None:
        """End the program by way of its wall, which then reaps and goes itself.

        Killing the wall would leave zombies to whoever is process 1 here, and that may not care.
        """
        if self.process.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            inside = children(self.process.pid)
            if at_once or not inside:
                os.killpg(self.process.pid, signal.SIGKILL)
            elif self.wall == "bubblewrap":
                for pid in inside:
                    os.kill(pid, signal.SIGKILL)
            else:
                self.process.send_signal(signal.SIGTERM)


def _over(pids: list[int], most: int) -> bool:
    return resident_bytes(pids) > most and exact_bytes(pids) > most
