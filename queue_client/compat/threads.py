"""A thread for each sync reward function: none is shared, so a stuck one holds up nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any


class Stopped(BaseException):
    """Raised inside a thread whose call nobody waits for any more."""


class ThreadCall:
    """One call in a thread of its own. `on_end` runs there when the function has really ended."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[Any] = self._loop.create_future()
        self._lock = threading.Lock()
        self._ended, self._in_function = False, True
        self._on_end: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="rewardpool-reward", daemon=True)
        self._thread.start()

    async def result(self) -> Any:
        """Return what the function returns, or raise what it raises."""
        return await self._done

    def leave(self, on_end: Callable[[], None]) -> bool:
        """Wait no more: stop it as far as Python can. False if it has ended already."""
        with self._lock:
            if self._ended:
                return False
            self._on_end = on_end
            if self._in_function:
                # Interrupts Python code, not a call in C: that one ends when it ends.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(Stopped)
                )
            return True

    def _run(self) -> None:
        value, error = None, None
        try:
            try:
                value = self._function()
            except Stopped:
                raise
            except BaseException as raised:  # noqa: BLE001 - handed to whoever waits
                error = raised
            with self._lock:
                self._in_function = False
            time.sleep(0)  # what `leave` raised at the last moment comes here, not below
        except Stopped:
            error = error or TimeoutError("stopped")
        with self._lock:
            self._ended, on_end = True, self._on_end
        if on_end is not None:
            on_end()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._settle, value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self._done.done():
            return
        if error is None:
            self._done.set_result(value)
        elif isinstance(error, Exception):
            self._done.set_exception(error)
        else:  # SystemExit and the like would end the loop
            self._done.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
