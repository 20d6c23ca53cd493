"""Clocks that are wrong: clients' by an hour, Redis' by a minute, back and forth."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_limiter_processes import WORKER, check_bucket, check_in_flight, read_calls

from limiter import AcquireTimeout, Limiter, Limits
from worker.ops.embedded import EmbeddedServer, find_server

LIBRARIES = sorted(Path("/usr/lib").glob("**/faketime/libfaketime.so.1"))
ROOT = Path(__file__).parents[3]


@pytest.fixture
def faketime() -> Path:
    """The library that makes a process believe in another time."""
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed")
    return LIBRARIES[0]


def test_the_limiter_asks_no_clock_of_its_own_but_for_dates_in_headers() -> None:
    for path in (ROOT / "limiter").glob("*.py"):
        found = re.findall(r"\btime\.time\(|datetime\.now\(", path.read_text(encoding="utf-8"))
        assert not found or path.name == "options.py", path


async def hammer(limiter: Limiter, grants: int) -> float:
    """Ask without waiting until so many were granted; returns the seconds that took."""
    began, granted = time.monotonic(), 0
    while granted < grants:
        with contextlib.suppress(AcquireTimeout):
            await (await limiter.acquire(timeout_s=0)).release()
            granted += 1
    return time.monotonic() - began


async def test_steps_of_redis_clock_mint_nothing_and_freeze_nothing(
    own_server: Callable[..., EmbeddedServer], faketime: Path, tmp_path: Path
) -> None:
    offset, wrapper = tmp_path / "offset", tmp_path / "server"
    binary = find_server(prefer_embedded=True)  # redis-server's allocator does not bear the library
    offset.write_text("+0\n")
    environment = f"LD_PRELOAD={faketime} FAKETIME_TIMESTAMP_FILE={offset} FAKETIME_NO_CACHE=1"
    wrapper.write_text(
        f'#!/bin/sh\nexec env {environment} FAKETIME_DONT_FAKE_MONOTONIC=1 {binary} "$@"\n'
    )
    wrapper.chmod(0o755)
    capacity, rate = 10, 10.0  # requests, requests a second
    with own_server(wrapper) as server:
        limiter = Limiter(server.url, Limits(name="stepping", rpm=600, burst_s=1))
        await hammer(limiter, capacity + 5)
        for step in ("-60\n", "-120\n"):  # a minute back, and another one
            offset.write_text(step)
            passed_s = await hammer(limiter, 15)
            assert capacity + rate * passed_s + 1 >= 15, "no grant that time did not earn"
        offset.write_text("-60\n")  # a minute forward is time passed: a full bucket at most
        passed_s = await hammer(limiter, 25)
        assert 2 * capacity + rate * passed_s + 1 >= 25
        await limiter.close()


def test_clients_an_hour_off_share_one_limit(
    redis_url: str, faketime: Path, tmp_path: Path
) -> None:
    fleet = []
    for number, offset in enumerate(("+3600", "-3600")):
        spec = {
            "url": redis_url,
            "limits": {"name": "off", "max_concurrent": 4, "rpm": 1200, "burst_s": 1},
            "file": str(tmp_path / f"off-{number}"),
            "tasks": 4,
            "call_s": 0.05,
            "seconds": 4,
        }
        environment = os.environ | {
            "LD_PRELOAD": str(faketime),
            "FAKETIME": offset,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        command = [sys.executable, str(WORKER), json.dumps([spec])]
        fleet.append(subprocess.Popen(command, env=environment))
    assert [process.wait() for process in fleet] == [0, 0]
    calls = read_calls(tmp_path, "off")

    check_bucket(calls, rate=1200, capacity=20, at_least_s=1)
    check_in_flight(calls, 4)
