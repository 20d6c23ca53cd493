"""`rewardpool worker`: the same worker, with its settings checked first, and the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from pool_support import Producer, Workers, await_true

from queue_client import Output, Trajectory, protocol
from queue_client.batch import TrajectoryBatch
from queue_client.wire import encode_batch


def rewardpool(*args: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "worker.ops.cli", "worker", *args],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_it_scores_with_the_settings_given(
    producer: Producer, redis_url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    config = tmp_path / "rewardpool.toml"
    config.write_text(
        "[limits.judge]\nmax_concurrent = 4\n"
        '[reward]\nfunction = "builtin:gsm8k"\nlimit = "judge"\nmanager = "rate_limited"\n'
    )
    process = rewardpool("rewards", "--config", str(config), "--redis", redis_url)
    try:
        rows = [
            Trajectory(outputs=[Output(text=f"so #### {n}")], ground_truth="1", uid=str(n))
            for n in range(3)
        ]
        reference = protocol.Reference(protocol.new_job_id(producer.id), 3, 0, producer.redis_ms())
        producer.enqueue(reference, encode_batch(TrajectoryBatch.pad(rows)))

        outcomes = producer.collect(3)

        assert [outcomes[reference.job_id, n].reward for n in range(3)] == [0.0, 1.0, 0.0]
        (key,) = connection.keys("rewardpool:worker:*")
        said = {k.decode(): v.decode() for k, v in connection.hgetall(key).items()}
        assert said["queues"] == "rewards"
        assert said["pid"] == str(process.pid)
        assert json.loads(said["limits"]) == ["judge"]
        (function,) = json.loads(said["functions"]).items()
        assert function[0] == "builtin:gsm8k"
        assert len(function[1]) == 64
        assert abs(int(said["clock_ms"])) < 5_000
        counted = connection.hgetall(protocol.stats_key("rewards"))
        assert counted[b"-|scored|rows"] == b"3"
        assert counted[b"-|scored|reward_le_1"] == b"1"
    finally:
        process.terminate()
        output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output


@pytest.mark.parametrize("line", ["[worker]\nconcurency = 3\n", "[worker]\nconcurrency = 0\n"])
def test_wrong_settings_end_it_before_it_listens(tmp_path: Path, line: str) -> None:
    config = tmp_path / "rewardpool.toml"
    config.write_text(line)
    process = rewardpool("rewards", "--config", str(config), "--redis", "redis://127.0.0.1:1/0")
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 2
    assert "worker.concur" in output
    assert "Traceback" not in output


def test_it_is_the_documented_line(redis_url: str) -> None:
    process = rewardpool("a", "b", "--dry-run", "--burst", "--redis", redis_url)
    output = process.communicate(timeout=60)[0]
    assert output.startswith(
        "rq worker -w worker.PoolWorker -j worker.PoolJob "
        "-S queue_client.wire.Serializer --burst a b"
    )


def test_burst_ends_by_itself_and_passes_rqs_options_on(redis_url: str, producer: Producer) -> None:
    process = rewardpool("--burst", "--redis", redis_url, "--", "--max-jobs", "3", "rewards")
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 0, output


def test_the_worker_ends_with_code_1_when_redis_is_not_there(workers: Workers) -> None:
    process = rewardpool("rewards", "--redis", "redis://127.0.0.1:1/0")
    await_true(lambda: process.poll() is not None)
    output = process.communicate()[0]
    assert process.returncode == 1, output
