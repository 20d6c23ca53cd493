"""Reward functions for tests: what the response's text says happens."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path


def misbehave(solution_str, extra_info=None):
    """Sync: score the text's length, unless it names a way to misbehave."""
    what, _, more = solution_str.partition(" ")
    if what == "hang":
        while True:
            pass
    elif what == "sleep":
        time.sleep(float(more))
    elif what == "exit":
        raise SystemExit(3)
    elif what == "_exit":
        os._exit(3)
    elif what == "segfault":
        ctypes.string_at(0)
    elif what == "memory":
        return float(len(bytearray(int(more) << 20)))
    elif what == "flood":
        line = "x" * 1000
        for _ in range(20_000):
            print(line)
            print(line, file=sys.stderr)
        os.write(1, b"y" * 1_000_000)
        subprocess.run(["head", "-c", "5000000", "/dev/zero"], check=True)
    elif what == "regex":
        re.match("(a+)+$", "a" * 40 + "b")
    elif what == "raise":
        raise ValueError(f"cannot parse {more}")
    elif what == "interrupt":
        raise KeyboardInterrupt
    elif what == "generator":
        raise GeneratorExit
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "alarm":
        signal.alarm(1)
    elif what == "family":
        subprocess.Popen(["sleep", "1000"], start_new_session=more == "own")
        time.sleep(1000)
    elif what == "close":
        os.closerange(0, 3)
    elif what == "replace":
        sys.stdout.close()
        sys.stderr = None
    elif what == "limits":
        import resource

        return float(resource.getrlimit(resource.RLIMIT_DATA)[0] > 0)
    return {"score": float(len(solution_str)), "pid": os.getpid()}


async def misbehave_async(solution_str):
    """Async: the same for the loop."""
    what, _, more = solution_str.partition(" ")
    if what == "sleep":
        await asyncio.sleep(float(more))
    elif what == "stubborn":
        for _ in range(int(more)):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
    elif what == "exit":
        await asyncio.sleep(0)
        raise SystemExit(3)
    elif what == "raise":
        raise ValueError(f"cannot parse {more}")
    elif what == "cancel":
        raise asyncio.CancelledError
    elif what == "timeout":
        raise TimeoutError("the judge took too long")
    elif what == "exactly":
        return {"score": 1, "format": 1}
    elif what == "skip":
        return None
    elif what == "nan":
        return float("nan")
    return 0.5


class Scorer:
    """A callable object; the pool cannot see that its wrapper is async."""

    async def __call__(self, solution_str):
        await asyncio.sleep(0)
        return 1.0


scorer = Scorer()


def plain_wrapper(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@plain_wrapper
async def _hidden(solution_str):
    await asyncio.sleep(0)
    return {"score": 1.0, "pid": os.getpid()}


def hidden_async(solution_str):
    """Looks sync, returns an awaitable."""
    return _hidden(solution_str)


partial_async = functools.partial(misbehave_async)


def joint(outputs):
    """One reward over all outputs."""
    texts = [output.text for output in outputs]
    return {"score": float(len(texts)), "texts": texts, "ids": [list(o.response_ids) if
            o.response_ids is not None else None for o in outputs]}  # fmt: skip


async def checksum(solution_str, ground_truth, extra_info, uid):
    """Sleeps so that rows finish in another order than they came; returns what it saw."""
    await asyncio.sleep(float(extra_info["delay_s"]))
    return {"score": 1.0, "seen": [solution_str, ground_truth, uid]}


def echo(solution_str, ground_truth, extra_info):
    """Shows that what arrives in another process is what was sent."""
    return {"score": 1.0, "types": [type(ground_truth).__name__, type(extra_info["pair"]).__name__],
            "big": str(extra_info["big"]), "text": solution_str}  # fmt: skip


def count_calls(solution_str, extra_info):
    """Fails until the file named by the row has seen so many calls."""
    from worker.rewards import SandboxFailure, UpstreamError

    calls = Path(extra_info["calls"])
    with calls.open("a") as file:
        file.write(".")
    if len(calls.read_text()) <= extra_info["failures"]:
        kind = extra_info.get("kind")
        if kind == "value":
            raise ValueError("never retried")
        if kind == "4xx":
            raise UpstreamError("HTTP 400", retryable=False)
        if kind == "sandbox":
            raise SandboxFailure("no sandbox")
        if kind == "sleep":
            for _ in range(600):
                time.sleep(0.1)
        raise UpstreamError("HTTP 503")
    return 1.0


def with_math_verify(solution_str, ground_truth):
    """A user's own function around the maths verifier."""
    from math_verify import parse, verify

    return float(verify(parse(ground_truth), parse(solution_str)))
