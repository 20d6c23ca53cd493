"""A real engine small enough to steer: each row says in `extra_info` what scoring it does.

It keeps the scoring engine's contract: it raises nothing but CancelledError, unless a row asks
for just that. Every start is written to the file POOL_RUNS: `uid attempt pid`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time

import redis

from queue_client import Kind, Outcome
from worker.pool import delivery, run, take
from worker.pool.worker import PoolWorker
from worker.scoring.request import ScoreRequest
from worker.settings import Settings


class SteeredEngine:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def start(self) -> None:
        runs = os.environ.get("POOL_RUNS")
        if runs and os.environ.get("POOL_PAUSE") == "start":
            os.close(os.open(runs + ".paused", os.O_CREAT))
            await asyncio.sleep(300)
        self.log = os.open(runs, os.O_APPEND | os.O_CREAT | os.O_WRONLY) if runs else None

    async def score(self, request: ScoreRequest) -> Outcome:
        trajectory = request.trajectory
        info = dict(trajectory.extra_info)
        if self.log is not None:
            os.write(self.log, f"{trajectory.uid} {request.attempt} {os.getpid()}\n".encode())
        began = time.monotonic()
        is_spared = info.get("only_first") and self.starts(str(trajectory.uid)) > 1
        await getattr(self, "_" + ("score" if is_spared else info.get("do", "score")))(info)
        if info.get("fail"):
            return Outcome.failed(Kind(info["fail"]), "told to fail")
        return Outcome.scored(
            float(info.get("reward", 1.0)),
            {"attempt": request.attempt},
            wait_s=request.queued_s,
            run_s=time.monotonic() - began,
        )

    def starts(self, uid: str) -> int:
        with open(os.environ["POOL_RUNS"]) as runs:
            return sum(line.split()[0] == uid for line in runs)

    async def close(self) -> None:
        if getattr(self, "log", None) is not None:
            os.close(self.log)

    async def _score(self, info: dict) -> None:
        pass

    async def _sleep(self, info: dict) -> None:
        await asyncio.sleep(info["s"])

    async def _die(self, info: dict) -> None:
        await asyncio.sleep(info.get("s", 0.05))
        os.kill(os.getpid(), signal.SIGKILL)

    async def _exit(self, info: dict) -> None:
        raise SystemExit(3)

    async def _raise(self, info: dict) -> None:
        raise RuntimeError("told to raise")

    async def _spin(self, info: dict) -> None:
        end = time.monotonic() + info["s"]
        while time.monotonic() < end:
            pass

    async def _hold(self, info: dict) -> None:
        ctypes.PyDLL(None).sleep(info["s"])  # keeps Python's lock: no thread of ours can beat

    async def _crash(self, info: dict) -> None:
        ctypes.string_at(0)


def _pause_at(point: str, module: object, name: str) -> None:
    """Let a worker sleep after `name`, if POOL_PAUSE names the point; it says so in a file."""
    if os.environ.get("POOL_PAUSE") != point:
        return
    original = getattr(module, name)

    def pausing(*args: object, **kwargs: object) -> object:
        found = original(*args, **kwargs)
        if found is not None:
            open(os.environ["POOL_RUNS"] + ".paused", "w").close()
            time.sleep(float(os.environ.get("POOL_PAUSE_S", "2")))
        return found

    setattr(module, name, pausing)


def _lose_answer(what: str, module: object, name: str) -> None:
    """Let one answer worth having get lost after its script ran, if POOL_PAUSE says so."""
    if os.environ.get("POOL_PAUSE") != f"lost {what}":
        return
    original = getattr(module, name)
    mark = os.environ["POOL_RUNS"] + ".paused"

    def losing(*args: object) -> object:
        found = original(*args)
        if len(found) > (2 if what == "take" else 0) and not os.path.exists(mark):
            open(mark, "w").close()
            raise redis.exceptions.ConnectionError("the answer got lost")
        return found

    setattr(module, name, losing)


_lose_answer("take", take, "_TAKE")
_lose_answer("deliver", delivery, "run_all")
_pause_at("parked", take, "_park")
_pause_at("taken", run, "flight_of")


class SteeredWorker(PoolWorker):
    """`rq worker -w pool_engines.SteeredWorker`."""

    def make_engine(self, settings: Settings) -> SteeredEngine:
        return SteeredEngine(settings)
