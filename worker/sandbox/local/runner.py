"""The local runner: the same reports as the server's, from a process on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import tempfile
import time
import weakref
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from worker.sandbox.errors import BadTests
from worker.sandbox.limits import Limit
from worker.sandbox.local.bounds import MIB, Bounds
from worker.sandbox.local.recipes import Recipe, recipe
from worker.sandbox.local.tree import children, descendants, exact_bytes, resident_bytes
from worker.sandbox.local.walls import Order, Wall, find_wall
from worker.sandbox.program import CommandResult, Program, RunReport, overall_status

logger = logging.getLogger(__name__)

_CHUNK = 64 * 1024
_WATCH_S = 0.1
_KILL_WAIT_S = 5.0
_BOX = "rewardpool-box-"
_STALE_S = 3600.0  # no program runs so long: its worker was killed


class LocalRunner:
    """Runs programs behind the best wall there is; see `walls` for what that means.

    `max_running` bounds the programs of this process at once: as many as cores by default, since a
    program's time is counted on the clock. Raises NoIsolation when programs cannot be walled off.
    """

    def __init__(
        self,
        *,
        bounds: Bounds | None = None,
        allow_unisolated: bool = False,
        max_running: int | None = None,
        python: str | None = None,
        wall: Wall | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.wall = wall or find_wall(python, self.bounds, allow_unisolated=allow_unisolated)
        _sweep_boxes()
        self._places = max_running or max(1, os.cpu_count() or 1)
        self._gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    def run_sync(self, program: Program) -> RunReport:
        """Run one program from a thread without an event loop."""
        return asyncio.run(self.run(program))

    async def run(self, program: Program, *, limit: Limit | None = None) -> RunReport:
        """Run one program; `limit` is for the server's sake and is not taken here.

        Raises UnsupportedLanguage, BadTests for a file outside the program's folder.
        """
        found = recipe(program.language, python=self.wall.python)
        async with self._gate():
            folder = Path(tempfile.mkdtemp(prefix=_BOX))
            try:
                return await self._run_in(folder, program, found)
            finally:
                shutil.rmtree(folder, onerror=_unlock_and_retry)

    async def aclose(self) -> None:
        """Nothing is kept between programs."""

    def _gate(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return self._gates.setdefault(loop, asyncio.Semaphore(self._places))

    async def _run_in(self, folder: Path, program: Program, found: Recipe) -> RunReport:
        _lay_out(folder, {**program.files, found.file: program.code.encode("utf-8", "replace")})
        compiled = None
        memory_mb = self.bounds.memory_for(program.memory_limit_mb)
        if found.compile:
            time_s = min(program.compile_timeout_s, self.bounds.compile_timeout_s)
            # compilers get the full bound: a program's limit is for the program
            compiled = await self._command(
                found.compile, folder, time_s, self.bounds.memory_mb, found, writable=True
            )
            if compiled.status != "Finished" or compiled.return_code != 0:
                status, message = overall_status(compiled)
                return RunReport(status, message, compile_result=compiled)
        time_s = min(program.run_timeout_s, self.bounds.run_timeout_s)
        ran = await self._command(
            found.run,
            folder,
            time_s,
            memory_mb,
            found,
            writable=bool(program.fetch_files),
            stdin=(program.stdin or "").encode("utf-8", "replace"),
        )
        status, message = overall_status(compiled, ran)
        files = _fetch(folder, program.fetch_files, self.bounds.file_mb * MIB)
        return RunReport(status, message, compiled, ran, files)

    async def _command(
        self,
        argv: tuple[str, ...],
        folder: Path,
        time_s: float,
        memory_mb: int,
        found: Recipe,
        *,
        writable: bool,
        stdin: bytes = b"",
    ) -> CommandResult:
        prelude = self.bounds.prelude(
            time_s=time_s, memory_mb=memory_mb, reserves_memory=found.reserves_memory
        )
        reading, writing = os.pipe()
        try:
            order = Order(argv, folder, writing, prelude, writable or not self.wall.isolates)
            started = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                *self.wall.command(order),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=[writing],
                start_new_session=True,
                cwd="/",
            )
            os.close(writing)
            writing = -1
            watched = _Watched(process, self.bounds, memory_mb, self.wall.name)
            await watched.finish(stdin, time_s)
            return watched.result(time.monotonic() - started, _exit_code(reading))
        finally:
            os.close(reading)
            if writing != -1:
                os.close(writing)


@dataclass
class _Watched:
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


def _exit_code(reading: int) -> int | None:
    """Return the program's exit code as its wall reported it; None if it never ran."""
    os.set_blocking(reading, False)
    code = None
    with suppress(BlockingIOError):
        for line in os.read(reading, _CHUNK).splitlines():
            with suppress(ValueError):
                code = json.loads(line).get("exit-code", code)
    return code


def _lay_out(folder: Path, files: dict[str, bytes]) -> None:
    folder.chmod(0o755)
    for name, data in files.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or not place.parts:
            raise BadTests(f"files: a path inside the program's folder expected (got {name!r})")
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o644)


def _fetch(folder: Path, names: Sequence[str], most: int) -> dict[str, bytes]:
    """Return files of the program by name; links it may have planted lead nowhere."""
    found: dict[str, bytes] = {}
    for name in names:
        place = folder / name
        if place.is_symlink() or not place.resolve().is_relative_to(folder.resolve()):
            continue
        with suppress(OSError):
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if os.fstat(descriptor).st_size <= most:
                    found[name] = file.read(most)
    return found


def _sweep_boxes() -> None:
    """Remove folders that killed workers of this user have left."""
    for found in Path(tempfile.gettempdir()).glob(f"{_BOX}*"):
        with suppress(OSError):
            told = found.lstat()
            if told.st_uid == os.getuid() and time.time() - told.st_mtime > _STALE_S:
                shutil.rmtree(found, onerror=_unlock_and_retry)


def _unlock_and_retry(remove: object, path: str, _: object) -> None:
    """Make a locked folder of the program's removable; what still resists is left and logged."""
    try:
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700)
        if callable(remove):
            remove(path)
    except OSError as error:
        logger.warning("program folder not removed path=%s error=%s", path, error)
