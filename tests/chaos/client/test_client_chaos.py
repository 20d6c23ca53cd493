"""What takes long to show: outages of half a minute, dead producers, many rows, defaults."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis
from client_consumer import Consumer, rows, until
from client_workers import Workers

from queue_client import Kind, Outcome, Output, RewardClient, Trajectory
from worker.ops.embedded import _free_port, find_server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def row(name: str, reward: float, *, sleep_s: float = 0.0) -> Trajectory:
    return Trajectory(
        outputs=[Output(text="x")],
        uid=name,
        extra_info={"name": name, "reward": reward, "sleep_s": sleep_s},
    )


class KeptServer:
    """A server that finds its data again when it is started again on its port."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, _free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        kept = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        command = [str(find_server(prefer_embedded=True)), *options, *kept]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url) as connection:
            until(lambda: self._answers(connection))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self, connection: redis.Redis) -> bool:
        try:
            return bool(connection.ping())
        except redis.ConnectionError:
            return False


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptServer]:
    server = KeptServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("away_s", [3, 30])
def test_an_outage_with_a_restart_loses_nothing(kept: KeptServer, tmp_path: Path, away_s: int):
    with Workers(kept.url, tmp_path, settings={}) as workers, RewardClient(kept.url) as client:
        workers.start(2)
        before = client.submit([row(f"a{n}", n, sleep_s=n % 5) for n in range(400)], timeout_s=400)
        until(lambda: sum(future.done() for future in before) > 100)
        kept.stop()
        during = client.submit([row(f"b{n}", n) for n in range(100)], timeout_s=400)
        time.sleep(away_s)
        kept.start()
        outcomes = [future.result(300) for future in [*before, *during]]
        assert [outcome.reward for outcome in outcomes] == [*range(400), *range(100)]


def test_a_killed_worker_costs_at_most_forty_seconds(redis_url: str, tmp_path: Path):
    with (
        Workers(redis_url, tmp_path, settings={"CONCURRENCY": "50"}) as workers,
        RewardClient(redis_url, rows_per_job=1) as client,
    ):
        workers.start(2)
        futures = client.submit([row(f"{n}", n, sleep_s=3) for n in range(100)], timeout_s=400)
        until(lambda: len(workers.starts()) == 100)  # fifty in each
        workers.processes[0].kill()
        killed_at = time.monotonic()
        assert [future.result(300).reward for future in futures] == list(range(100))
        assert len(workers.starts()) == 150
        assert time.monotonic() - killed_at < 40


PRODUCER = """
    import sys
    from queue_client import Output, RewardClient, Trajectory
    client = RewardClient(sys.argv[1], rows_per_job=1)
    client.submit([
        Trajectory(outputs=[Output(text="x")],
                   extra_info={"name": str(n), "reward": 1.0, "sleep_s": 5.0})
        for n in range(2000)
    ])
    print("handed over", flush=True)
    sys.stdin.read()
"""


def test_the_work_of_a_killed_producer_is_soon_not_scored(redis_url: str, tmp_path: Path):
    with Workers(redis_url, tmp_path, settings={"CONCURRENCY": "8"}) as workers:
        workers.start()
        producer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PRODUCER), redis_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with producer:
            assert producer.stdout is not None
            assert producer.stdout.readline() == b"handed over\n"
            until(lambda: workers.starts())
            producer.kill()
        time.sleep(75)
        started = len(workers.starts())
        time.sleep(15)
        assert len(workers.starts()) <= started + 8
        assert started < 2000


def test_a_wait_of_minutes_is_no_error(redis_url: str, tmp_path: Path):
    with Workers(redis_url, tmp_path, settings={}) as workers, RewardClient(redis_url) as client:
        workers.start()
        [outcome] = client.score([row("long", 7, sleep_s=90)], timeout_s=200)
        assert outcome.reward == 7
        assert client.metrics()["rewardpool/connection_losses"] == 0


def test_memory_files_and_threads_stay_flat_over_many_rows(redis_url: str, tmp_path: Path):
    process = psutil.Process()

    def score(one: Trajectory) -> Outcome:
        number = int(one.uid or 0)
        return Outcome.failed(Kind.SCORER_ERROR, "told to") if number % 20 == 0 else length(one)

    def length(one: Trajectory) -> Outcome:
        return Outcome.scored(float(len(one.outputs[-1].text or "")), {"acc": 1.0})

    with Consumer(redis_url) as consumer, RewardClient(redis_url) as client:
        consumer.score = score
        figures = []
        for turn in range(40):
            some = rows(1000, prefix="") if turn % 2 else rows(1000)
            outcomes = client.score(some, timeout_s=300)
            assert sum(not outcome.ok for outcome in outcomes) == 50
            consumer.scored.clear()
            consumer.jobs.clear()
            consumer.functions.clear()
            client.metrics()
            del outcomes, some
            gc.collect()
            figures.append((process.memory_info().rss, process.num_fds(), threading.active_count()))
    early, late = figures[10], figures[-1]
    assert late[0] < early[0] * 1.1
    assert late[1] <= early[1] + 1
    assert late[2] <= early[2]


def test_a_frozen_trainer_goes_on_where_it_was(redis_url: str, tmp_path: Path):
    """A trainer stopped for 20 s (a debugger, a full machine) finds its outcomes waiting."""
    script = """
        import sys
        from queue_client import Output, RewardClient, Trajectory
        client = RewardClient(sys.argv[1])
        futures = client.submit([
            Trajectory(outputs=[Output(text="x")],
                       extra_info={"name": str(n), "reward": float(n), "sleep_s": 4.0})
            for n in range(200)
        ], timeout_s=300)
        print("handed over", flush=True)
        rewards = [future.result().reward for future in futures]
        assert rewards == [float(n) for n in range(200)], rewards
    """
    with Workers(redis_url, tmp_path, settings={}) as workers:
        workers.start()
        trainer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), redis_url], stdout=subprocess.PIPE
        )
        with trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"handed over\n"
            os.kill(trainer.pid, signal.SIGSTOP)
            time.sleep(20)
            os.kill(trainer.pid, signal.SIGCONT)
            assert trainer.wait(200) == 0
        assert sorted(map(int, workers.starts())) == list(range(200))
