"""Inside a helper process: import functions, run one row at a time, answer.

Whatever a function does to its process (prints, signals, exits, memory) stays here: standard
output goes nowhere, memory is capped, and only plain data is sent back.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.rewards.errors import RewardFailure
from worker.scoring.helpers import frames

TELLS_MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A function in this process, ready to run; `limits` is None if it takes none."""

    function: Any
    plan: Any
    limits: Any
    settling: Any


def serve(channel: socket.socket, *, memory_mb: int, path: list[str]) -> None:
    """Answer the worker until it closes the channel."""
    _quieten()
    channel.set_inheritable(False)
    sys.path[:] = path
    functions: dict[str, Loaded] = {}
    while (message := frames.receive(channel)) is not None:
        if message["op"] == "load":
            reply = _load(functions, message)
            _cap_memory(memory_mb)
        else:
            reply = _run(functions[message["key"]], message, channel)
            _clean_up()
        channel.sendall(_packed(reply))
        if reply.get("worn"):
            return


def _load(functions: dict[str, Loaded], message: Mapping[str, Any]) -> dict[str, Any]:
    from worker.rewards import registry
    from worker.scoring import calls
    from worker.scoring.functions import load
    from worker.scoring.limits import LimitBook, Settling
    from worker.settings import LimitSettings

    try:
        function = load(message["spec"])
        if message["spec"].startswith(registry.PREFIX):
            registry.builtin(message["spec"]).prepare()
        plan = calls.plan(function, message["kwargs"], spec=message["spec"])
        limits = None
        if plan.takes_limits:
            given = {n: LimitSettings(**each) for n, each in (message["limits"] or {}).items()}
            limits = LimitBook(message["redis_url"], given)
        functions[message["key"]] = Loaded(function, plan, limits, Settling())
    except BaseException as error:
        return described(error)
    return {"ok": True}


def _run(loaded: Loaded, message: Mapping[str, Any], channel: socket.socket) -> dict[str, Any]:
    from worker.scoring.results import verdict

    try:
        if loaded.limits is not None:
            return _run_with_limits(loaded, message, channel)
        value = loaded.function(**message["arguments"])
        if inspect.isawaitable(value):
            if not message["awaits"]:
                with contextlib.suppress(Exception):
                    value.close()  # type: ignore[attr-defined]  # never begun: it runs on the loop
                return {"awaitable": True}
            value = asyncio.run(_awaited(value))
        found = verdict(loaded.plan.result(value))
    except BaseException as error:
        return described(error)
    return _reply(found)


def _reply(found: Any) -> dict[str, Any]:
    return {"reward": found.reward, "extra": found.extra, "usage": found.usage}


def _run_with_limits(
    loaded: Loaded, message: Mapping[str, Any], channel: socket.socket
) -> dict[str, Any]:
    """Run with the limits' sync face; the worker stops the row's clock while we wait."""
    from worker.scoring.clock import RowClock
    from worker.scoring.leases import SyncFace
    from worker.scoring.limits import CallLimits
    from worker.scoring.runners import called_with_limits

    clock = RowClock(math.inf, math.inf if message["wait_s"] is None else message["wait_s"])
    clock.start()
    waits = [False]

    def tell() -> None:
        if clock.is_waiting != waits[0]:
            waits[0] = clock.is_waiting
            channel.sendall(frames.pack({"clock": "wait" if waits[0] else "run"}))

    clock.changed = tell
    call = CallLimits(loaded.limits, clock, loaded.settling, SyncFace)
    try:
        return _reply(called_with_limits(loaded.function, message["arguments"], loaded.plan, call))
    finally:
        clock.changed = None


async def _awaited(value: Any) -> Any:
    return await value


def described(error: BaseException) -> dict[str, Any]:
    """An error as data: its kind, one line, and what the worker needs to act on it."""
    from worker.scoring.failures import failure_of

    failure = failure_of(error)
    reply: dict[str, Any] = {
        "error": str(failure),
        "kind": failure.kind.value,
        "retryable": failure.retryable,
        "worn": isinstance(error, MemoryError),  # a heap that failed once is not to be trusted
    }
    for name in ("retry_after_s", "limit"):
        if isinstance(failure, RewardFailure) and hasattr(failure, name):
            reply[name] = getattr(failure, name)
    return reply


def _packed(reply: dict[str, Any]) -> bytes:
    try:
        return frames.pack(reply)
    except BaseException as error:
        return frames.pack(described(error))


def _quieten() -> None:
    """Point 0, 1 and 2 at nothing: a flood of prints costs nothing and breaks nothing."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if nothing != standard:
            os.dup2(nothing, standard)
    if nothing > 2:
        os.close(nothing)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False, encoding="utf-8", errors="replace")
    sys.stderr = os.fdopen(2, "w", closefd=False, encoding="utf-8", errors="replace")


def _quieten_again() -> None:
    """Put the standard streams back if a function has closed or replaced them."""
    try:
        whole = all(os.fstat(standard) for standard in (0, 1, 2))
        whole = whole and sys.stdout.fileno() == 1 and sys.stderr.fileno() == 2
    except (OSError, ValueError, AttributeError):
        whole = False
    if not whole:
        _quieten()


def _cap_memory(memory_mb: int) -> None:
    """Cap what rows may take on top of what the imports took (writable private memory)."""
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        cap = _data_bytes() + (memory_mb << 20)
        if hard != resource.RLIM_INFINITY:
            cap = min(cap, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (cap, hard))


def _data_bytes() -> int:
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 256 << 20


def _clean_up() -> None:
    """Undo what a function may have left: alarms, zombies, closed streams, a frozen collector."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    gc.enable()
    _quieten_again()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
