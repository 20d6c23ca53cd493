"""The exported sums agree with what the client received."""

from __future__ import annotations

import math
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from limiter import Limiter, Limits
from queue_client import Outcome, Output, RewardClient, Trajectory
from queue_client.protocol import REWARD_BOUNDS, TIME_BOUNDS_S, payload_key, stats_key
from worker.ops.address import connect
from worker.ops.local_pool import LocalPool
from worker.ops.metrics import PoolCollector

REWARD = """
import asyncio


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    what, _, number = solution_str.partition(" ")
    await asyncio.sleep((extra_info or {}).get("sleep_s", 0))
    if what == "raise":
        raise ValueError(solution_str)
    if what == "skip":
        return None
    return float("nan") if what == "nan" else float(number)
"""
TIMEOUT_S = 90


class Samples:
    """One scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.values[sample.name, frozenset(sample.labels.items())] = sample.value

    def get(self, name: str, **labels: str) -> float:
        return self.values[name, frozenset(labels.items())]

    def all(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (one, labels), value in self.values.items() if one == name}


def scrape(connection: redis.Redis) -> str:
    registry = CollectorRegistry()
    registry.register(PoolCollector(connection))
    return generate_latest(registry).decode()


def rows() -> list[Trajectory]:
    made = []
    for number in range(240):
        text = ("raise x", "nan 0", "skip 0")[number % 3] if number % 10 == 0 else (
            f"give {(number % 9 - 4) / 4}"
        )  # fmt: skip
        made.append(
            Trajectory(
                outputs=[Output(text=text, response_ids=list(range(number % 7 + 1)))],
                data_source=f"set|{number % 3}" if number % 5 else None,
                extra_info={"sleep_s": 0.15 if number % 60 == 0 else 0},
            )
        )
    return made


@pytest.fixture
def reward(tmp_path: Path) -> str:
    file = tmp_path / "reward.py"
    file.write_text(REWARD)
    return f"{file}:compute_score"


def test_sums_agree_with_what_the_client_received(
    redis_url: str, connection: redis.Redis, reward: str
) -> None:
    sent = rows()
    pool = LocalPool(workers=2, redis_url=redis_url, settings={"reward": {"function": reward}})
    with pool, RewardClient(redis_url) as client:
        received = client.score(sent, timeout_s=TIMEOUT_S)
        seen = Samples(scrape(connection))
    assert {one.status for one in received} == {"scored", "failed"}

    def source(trajectory: Trajectory) -> str:
        return (trajectory.data_source or "-").replace("|", "/")

    counted: Counter[tuple[str, str]] = Counter()
    by_source: dict[str, list[tuple[Trajectory, Outcome]]] = defaultdict(list)
    for trajectory, outcome in zip(sent, received, strict=True):
        counted[source(trajectory), outcome.kind or "scored"] += 1
        by_source[source(trajectory)].append((trajectory, outcome))
    exported = {
        (dict(labels)["data_source"], dict(labels)["status"]): value
        for labels, value in seen.all("rewardpool_outcomes_total").items()
    }
    assert exported == counted
    for name, pairs in by_source.items():
        labels = {"queue": "rewards", "data_source": name}
        rewards = [one.reward for _, one in pairs if one.reward is not None]
        assert seen.get("rewardpool_reward_points", **labels) == pytest.approx(sum(rewards))
        tokens = sum(len(one.outputs[0].response_ids or []) for one, _ in pairs)
        assert seen.get("rewardpool_response_tokens_total", **labels) == tokens
        check_histogram(seen, "rewardpool_reward", labels, rewards, REWARD_BOUNDS)
        for what in ("wait", "run"):
            values = [getattr(one, f"{what}_s") for _, one in pairs]
            family = f"rewardpool_{what}_seconds"
            assert seen.get(f"{family}_count", **labels) == len(values)
            # workers count whole milliseconds
            assert abs(seen.get(f"{family}_sum", **labels) - sum(values)) <= 0.001 * len(values)
            check_histogram(seen, family, labels, values, TIME_BOUNDS_S)


def check_histogram(
    seen: Samples, family: str, labels: dict[str, str], values: list[Any], bounds: tuple[float, ...]
) -> None:
    for bound in (*bounds, math.inf):
        le = "+Inf" if bound == math.inf else f"{bound:g}"
        found = seen.get(f"{family}_bucket", le=le, **labels)
        # A value just above a bound may be cut to it: workers count whole milliseconds.
        least = sum(value <= bound for value in values)
        most = sum(value < bound + 0.001 for value in values)
        assert least <= found <= most, (family, le)


def only_job(connection: redis.Redis) -> str:
    """The id of the one job there will be; submitting is done by a thread."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for key in connection.scan_iter("rq:job:*"):
            return str(key.decode().rpartition(":")[2])
        time.sleep(0.02)
    raise AssertionError("no job was submitted")


def test_jobs_that_fail_as_a_whole_count_each_of_their_rows(
    redis_url: str, connection: redis.Redis, reward: str
) -> None:
    with RewardClient(redis_url, rows_per_job=8) as client:
        futures = client.submit([Trajectory(outputs=[Output(text="give 1")])] * 8)
        job_id = only_job(connection)
        connection.set(payload_key(job_id), b"\x00 not a payload", ex=600)
        settings = {"reward": {"function": reward}}
        with LocalPool(workers=1, redis_url=redis_url, settings=settings):
            received = [future.result(TIMEOUT_S) for future in futures]
        seen = Samples(scrape(connection))
    assert {one.kind for one in received} == {"bad_input"}
    labels = {"queue": "rewards", "data_source": "-", "status": "bad_input"}
    assert seen.get("rewardpool_outcomes_total", **labels) == 8
    assert seen.get("rewardpool_queue_jobs", queue="rewards", state="failed") == 1


async def test_limits_are_exported_as_they_stand(redis_url: str, connection: redis.Redis) -> None:
    limiter = Limiter(redis_url, Limits(name='judge "a"', max_concurrent=2, rpm=600))
    async with limiter.lease(tokens=5):
        seen = Samples(scrape(connection))
    await limiter.close()
    assert seen.get("rewardpool_limit_in_flight", limit='judge "a"') == 1
    assert seen.get("rewardpool_limit_max_concurrent", limit='judge "a"') == 2
    assert seen.get("rewardpool_limit_grants_total", limit='judge "a"') == 1
    assert seen.get("rewardpool_limit_per_minute", limit='judge "a"', bucket="requests") == 600
    assert not any(
        "tokens" in dict(one).values() for one in seen.all("rewardpool_limit_per_minute")
    )


def test_nonsense_in_the_counters_is_left_out(connection: redis.Redis) -> None:
    connection.sadd("rq:queues", "rq:queue:rewards")
    key = stats_key("rewards")
    connection.hset(key, mapping={
        "a|scored|rows": "3", "a|scored|wait_le_inf": "nan", "a|scored|wait_le_<b>": "1",
        "a|scored|run_ms": "1e999", "rows": "7", "b|scored|what": "1", 'q"\n|scored|rows': "2",
        b"\xff|scored|rows": "1",
    })  # fmt: skip
    connection.expire(key, 60)
    seen = Samples(scrape(connection))
    labels = {"queue": "rewards", "data_source": "a", "status": "scored"}
    assert seen.get("rewardpool_outcomes_total", **labels) == 3
    assert seen.get("rewardpool_outcomes_total", **(labels | {"data_source": 'q"\n'})) == 2


def test_data_sources_are_bounded(connection: redis.Redis) -> None:
    connection.sadd("rq:queues", "rq:queue:rewards")
    key = stats_key("rewards")
    connection.hset(key, mapping={f"s{n}|scored|rows": 1 for n in range(500)})
    connection.expire(key, 60)
    seen = Samples(scrape(connection)).all("rewardpool_outcomes_total")
    assert len(seen) == 201
    assert sum(seen.values()) == 500


def test_prometheus_takes_what_is_exported(connection: redis.Redis, redis_url: str) -> None:
    promtool = which("promtool")
    if promtool is None:
        pytest.skip("no promtool here (Debian: prometheus)")
    connection.sadd("rq:queues", "rq:queue:rewards")
    key = stats_key("rewards")
    connection.hset(key, mapping={'<a "b"\\>|scored|rows': 1, "x|timeout|rows": 2})
    connection.expire(key, 60)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=scrape(connection), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_dead_redis_is_a_metric() -> None:
    text = scrape(connect("redis://127.0.0.1:1/0"))
    assert "rewardpool_redis_up 0.0" in text
    assert "rewardpool_queue_jobs{" not in text


def test_the_command_serves_until_it_is_told_to_stop(redis_url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.ops.cli", "metrics", "--redis", redis_url, "--port", "0"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        address = said.split()[-1]
        with urllib.request.urlopen(f"{address}metrics", timeout=30) as reply:
            assert b"rewardpool_redis_up 1.0" in reply.read()
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stderr.close()
