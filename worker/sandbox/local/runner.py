"""The local runner: the same reports as the server's, from a process on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import tempfile
import time
import weakref
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from pathlib import Path, PurePosixPath

from worker.sandbox.errors import BadTests
from worker.sandbox.limits import Limit, Waiting
from worker.sandbox.local.bounds import MIB, Bounds
from worker.sandbox.local.command import Command
from worker.sandbox.local.recipes import Recipe, recipe
from worker.sandbox.local.walls import Order, Wall, find_wall
from worker.sandbox.program import CommandResult, Program, RunReport, overall_status

logger = logging.getLogger(__name__)

_CHUNK = 64 * 1024
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

    async def run(
        self, program: Program, *, limit: Limit | None = None, waiting: Waiting | None = None
    ) -> RunReport:
        """Run one program; `limit` is for the server's sake and is not taken here.

        `waiting` makes a block for the time until one of the places here is free.
        Raises UnsupportedLanguage, BadTests for a file outside the program's folder.
        """
        found = recipe(program.language, python=self.wall.python)
        async with AsyncExitStack() as place:
            with (waiting or nullcontext)():
                await place.enter_async_context(self._gate())
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
            watched = Command(process, self.bounds, memory_mb, self.wall.name)
            await watched.finish(stdin, time_s)
            return watched.result(time.monotonic() - started, _exit_code(reading))
        finally:
            os.close(reading)
            if writing != -1:
                os.close(writing)


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
