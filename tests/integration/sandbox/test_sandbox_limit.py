"""The limit holds at the server, whoever calls, also when a caller dies in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_server import Answer, SandboxServer, ran

CALLER = Path(__file__).parents[2] / "sandbox_caller.py"
PROGRAMS = 10


@pytest.fixture
def callers(stub: SandboxServer, redis_url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Four worker processes that call the server."""
    stub.answering = lambda body: Answer(200, ran(stdout="4"), sleep_s=0.1)
    command = [sys.executable, str(CALLER), stub.url, redis_url, str(PROGRAMS)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def finished(callers: list[subprocess.Popen[str]]) -> list[str]:
    return [process.communicate(timeout=120)[0] for process in callers]


def test_four_processes_one_of_them_killed_never_have_six_calls_in_flight(
    stub: SandboxServer, callers: list[subprocess.Popen[str]]
) -> None:
    deadline = time.monotonic() + 60
    while len(stub.seen) < 8:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    callers[0].kill()
    assert finished(callers[1:]) == ["done\n"] * 3
    assert len(stub.seen) >= 3 * PROGRAMS
    assert 2 <= stub.most_in_flight <= 5
