"""One limit shared by worker processes, as the called server counts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import redis

from queue_client import Output, RewardClient, Trajectory

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]
FUNCTIONS = Path(__file__).with_name("calls_over_http.py")


class Called(ThreadingHTTPServer):
    """The upstream: counts what is inside and when each call began."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, call_s: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.call_s = call_s
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.starts: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def within(self, window_s: float) -> int:
        """The most starts in any window of so many seconds."""
        starts = sorted(self.starts)
        return max(
            (sum(1 for other in starts[at:] if other < start + window_s)
             for at, start in enumerate(starts)),
            default=0,
        )  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    server: Called

    def do_GET(self) -> None:
        server = self.server
        with server.lock:
            server.inside += 1
            server.most = max(server.most, server.inside)
            server.starts.append(time.monotonic())
        time.sleep(server.call_s)
        with server.lock:
            server.inside -= 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def called(request):
    with Called(request.param) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def start_workers(redis_url, tmp_path):
    running: list[subprocess.Popen[bytes]] = []

    def start(limits: str, function: str, *, workers: int, reward: str = "") -> list:
        config = tmp_path / "rewardpool.toml"
        config.write_text(
            f'[redis]\nurl = "{redis_url}"\n[limits.judge]\n{limits}\n'
            f'[reward]\nfunction = "{FUNCTIONS}:{function}"\n{reward}\n'
        )
        command = [sys.executable, "-m", "rq.cli", "worker", "-u", redis_url]
        command += ["-w", "worker.PoolWorker", "-j", "worker.PoolJob"]
        command += ["-S", "queue_client.wire.Serializer", "rewards"]
        env = dict(os.environ, REWARDPOOL_CONFIG=str(config))
        for _ in range(workers):
            with (tmp_path / f"worker{len(running)}.log").open("wb") as log:
                running.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        with redis.Redis.from_url(redis_url) as client:
            end = time.monotonic() + 60
            while client.scard("rq:workers") < len(running):
                assert time.monotonic() < end
                time.sleep(0.1)
        return running

    yield start
    for process in running:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def rows(url, many, **info):
    return [
        Trajectory(outputs=[Output(text="x")], uid=str(at), extra_info={"url": url, **info})
        for at in range(many)
    ]


@pytest.mark.parametrize("called", [0.5], indirect=True)
@pytest.mark.parametrize("function", ["call_async", "call_sync"])
def test_three_processes_share_one_limit_for_a_minute(start_workers, called, redis_url, function):
    """2 at once, 120 a minute, 12,000 tokens a minute; calls of 0.5 s and 100 tokens."""
    start_workers("max_concurrent = 2\nrpm = 120\ntpm = 12_000\nburst_s = 1", function, workers=3)
    with RewardClient(redis_url, queue="rewards") as client:
        began = time.monotonic()
        futures = client.submit(rows(called.url, 150))
        while time.monotonic() < began + 62:
            time.sleep(0.5)
        started = [start for start in called.starts if start < called.starts[0] + 60]
        client.cancel(futures)

    assert called.most <= 2
    assert called.within(60) <= 120 + 2
    assert called.within(1) <= 2 + 2 + 1, "a bucket of one second, and what a second refills"
    assert len(started) >= 0.95 * 120


@pytest.mark.parametrize("called", [0.0], indirect=True)
def test_instant_calls_of_many_processes_keep_to_a_strict_minute(start_workers, called, redis_url):
    start_workers("rpm = 60\nstrict = true", "call_sync", workers=3, reward='executor = "process"')
    with RewardClient(redis_url, queue="rewards") as client:
        futures = client.submit(rows(called.url, 240))
        end = time.monotonic() + 75
        while time.monotonic() < end:
            time.sleep(0.5)
        client.cancel(futures)

    assert called.within(60) <= 60
    assert len(called.starts) >= 55


@pytest.mark.parametrize("called", [0.0], indirect=True)
def test_a_killed_worker_gives_its_places_back_within_a_lease(start_workers, called, redis_url):
    workers = start_workers("max_concurrent = 5", "hold", workers=1)
    with RewardClient(redis_url, queue="rewards") as client:
        held = client.submit(rows(called.url, 5, hold_s=600))
        end = time.monotonic() + 60
        while len(called.starts) < 5:
            assert time.monotonic() < end
            time.sleep(0.1)
        workers[0].kill()
        workers[0].wait()
        client.cancel(held)
        start_workers("max_concurrent = 5", "hold", workers=1)
        began = time.monotonic()

        outcomes = client.score(rows(called.url, 5, hold_s=0), timeout_s=120)

        assert all(outcome.ok for outcome in outcomes), outcomes
        assert time.monotonic() - began < 30 + 12 + 10
