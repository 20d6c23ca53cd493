"""A server with quotas of its own, loaded by four processes for a minute, never says 429."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("llmock")

WORKER = Path(__file__).parent / "limiter_upstream_worker.py"
RPM, TPM, SECONDS = 600, 30_000, 60.0


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[str]:
    """An OpenAI-compatible server that enforces its quotas, in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--port", str(port), "--rpm", str(RPM), "--tpm", str(TPM), "--log-level", "error")
    command = [str(Path(sys.executable).parent / "llmock"), "serve", *options]
    with (tmp_path / "llmock.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None, (tmp_path / "llmock.log").read_text()
            try:
                httpx.get(f"{url}/_llmock/verdict", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def test_an_upstream_with_quotas_is_used_and_never_refuses(
    redis_url: str, upstream: str, tmp_path: Path
) -> None:
    """The bucket is 95 % of the server's, at its rate; what it charges is what we reserve."""
    limits = {"name": "upstream", "max_concurrent": 32, "rpm": RPM, "tpm": TPM}
    limits |= {"burst_s": 57, "refund": False}
    fleet = []
    for process in range(4):
        spec = {"redis": redis_url, "upstream": upstream, "limits": limits, "seed": process}
        spec |= {"seconds": SECONDS, "file": str(tmp_path / f"calls-{process}")}
        fleet.append(subprocess.Popen([sys.executable, str(WORKER), json.dumps(spec)]))
    assert [process.wait() for process in fleet] == [0, 0, 0, 0]
    files = tmp_path.glob("calls-*")
    calls = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    verdict = httpx.get(f"{upstream}/_llmock/verdict", timeout=60).json()

    assert {call["status"] for call in calls} == {200}
    assert verdict["passed"], verdict
    assert not verdict.get("errors"), verdict
    assert not verdict.get("warnings"), verdict
    times = [call["granted_ms"] for call in calls]
    passed_ms = max(times) - min(times)
    allowed = TPM + TPM * passed_ms / 60_000
    used = sum(call["cost"] for call in calls)
    assert used >= 0.95 * allowed, f"{used} of {allowed:.0f} tokens"
    assert passed_ms > 45_000
