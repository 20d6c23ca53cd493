"""`rewardpool info` and `rewardpool doctor`, with a real worker and on broken deployments."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from client_consumer import until

from queue_client.protocol import worker_key
from worker.ops.commands import doctor, info
from worker.ops.local_pool import LocalPool

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    raise AssertionError("no ping reaches a reward function")
"""


def run(command: Any, *arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(command, [*arguments, "--json"])
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout)


def diagnosis(url: str, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    code, found = run(doctor.command, "--redis", url, *arguments)
    return code, {check["name"]: check for check in found}


def register(connection: Any, name: str, queues: str = "rewards", **facts: str) -> None:
    """What a worker of ours on another host would say."""
    connection.sadd("rq:workers", f"rq:worker:{name}")
    connection.sadd("rq:workers:rewards", f"rq:worker:{name}")
    connection.hset(f"rq:worker:{name}", mapping={"queues": queues, "state": "idle"})
    connection.expire(f"rq:worker:{name}", 60)
    said = {"host": name, "version": "0.1.0", "settings": "one", "clock_ms": "0"} | facts
    connection.hset(worker_key(name), mapping=said)
    connection.expire(worker_key(name), 60)


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REWARDPOOL_CONFIG", raising=False)


def test_a_sound_deployment_passes_and_a_ping_comes_back(
    redis_url, connection, tmp_path, monkeypatch
):
    function = f"{tmp_path}/my_rewards.py:compute_score"
    (tmp_path / "my_rewards.py").write_text(REWARD)
    monkeypatch.setenv("REWARDPOOL_REWARD__FUNCTION", function)
    with LocalPool(workers=1, redis_url=redis_url):
        until(lambda: list(connection.scan_iter(worker_key("*"))))
        code, found = diagnosis(redis_url, "--round-trip")
        _, seen = run(info.command, "--redis", redis_url)
    assert [check for check in found.values() if check["state"] != "ok"] == []
    assert code == 0
    assert "ms" in found["round trip rewards"]["said"]
    assert "here" in found[f"function {function}"]["said"]
    [worker] = seen["workers"]
    assert worker["queues"] == ["rewards"]
    assert worker["ours"]
    assert list(worker["functions"]) == [function]
    [queue] = seen["queues"]
    assert (queue["name"], queue["queued"], queue["workers"]) == ("rewards", 0, 1)


def test_an_absent_redis_is_a_failed_check_and_a_one_line_error():
    code, found = diagnosis("redis://127.0.0.1:1/0")
    assert (code, found["redis"]["state"]) == (1, "fail")
    done = CliRunner().invoke(info.command, ["--redis", "redis://127.0.0.1:1/0"])
    assert done.exit_code == 2
    assert "Redis is unavailable" in done.output


def test_wrong_settings_end_with_code_2_and_say_where(redis_url, tmp_path):
    config = tmp_path / "bad.toml"
    config.write_text("[worker]\nconcurency = 3\n")
    done = CliRunner().invoke(doctor.command, ["--redis", redis_url, "--config", str(config)])
    assert done.exit_code == 2
    assert "concurency" in done.output


def test_a_queue_without_workers_fails(redis_url, connection):
    connection.sadd("rq:queues", "rq:queue:later")
    connection.rpush("rq:queue:later", "job")
    code, found = diagnosis(redis_url)
    assert code == 1
    assert found["workers"]["state"] == "fail"
    assert "rewardpool worker later" in found["queue later"]["said"]


def test_a_function_that_differs_between_hosts_fails(redis_url, connection):
    register(connection, "host-a", functions=json.dumps({"mine:score": "a" * 64}))
    register(connection, "host-b", functions=json.dumps({"mine:score": "b" * 64}))
    register(connection, "host-c", functions=json.dumps({"other:score": "error: no module"}))
    code, found = diagnosis(redis_url)
    assert code == 1
    assert "host-a" in found["function mine:score"]["said"]
    assert "host-b" in found["function mine:score"]["said"]
    assert found["function other:score"]["state"] == "fail"
    assert "no module" in found["function other:score"]["said"]


def test_clocks_settings_and_versions_are_compared(redis_url, connection):
    register(connection, "early", clock_ms="-45000")
    register(connection, "other", settings="two", version="9.9.9")
    code, found = diagnosis(redis_url)
    assert code == 1
    assert found["clock skew"]["state"] == "fail"
    assert "early" in found["clock skew"]["said"]
    assert found["settings"]["state"] == "warn"
    assert "9.9.9" in found["versions"]["said"]


def test_an_eviction_policy_is_named(redis_url, connection):
    before = connection.config_get("maxmemory*")
    try:
        connection.config_set("maxmemory-policy", "allkeys-lru")
        assert diagnosis(redis_url)[1]["maxmemory-policy"]["state"] == "warn"
        connection.config_set("maxmemory", "1gb")
        code, found = diagnosis(redis_url)
        assert (code, found["maxmemory-policy"]["state"]) == (1, "fail")
    finally:
        connection.config_set("maxmemory", before["maxmemory"])
        connection.config_set("maxmemory-policy", before["maxmemory-policy"])


def test_limits_that_no_worker_uses_are_named(redis_url, connection, tmp_path):
    (tmp_path / "rewardpool.toml").write_text("[limits.judge]\nrpm = 60\n[limits.idle]\nrpm = 1\n")
    register(connection, "host-a", limits=json.dumps(["judge"]))
    _, found = diagnosis(redis_url)
    assert found["limits"] == {"name": "limits", "state": "warn", "said": "no worker uses idle"}


def test_foreign_and_suspended_workers_are_warnings(redis_url, connection):
    connection.sadd("rq:workers", "rq:worker:stock")
    connection.hset("rq:worker:stock", mapping={"queues": "rewards", "state": "idle"})
    connection.expire("rq:worker:stock", 60)
    connection.set("rq:suspended", 1)
    _, found = diagnosis(redis_url)
    assert "foreign" in found["worker stock"]["said"]
    assert found["suspended"]["state"] == "warn"


def test_hostile_facts_are_shown_as_text_and_run_nothing(redis_url, connection, tmp_path):
    class Trap:
        def __reduce__(self) -> object:
            return Path.touch, (tmp_path / "executed",)

    attack = pickle.dumps(Trap())
    facts = ("host", "version", "functions", "limits", "clock_ms", "settings", "concurrency")
    register(connection, "evil", queues="[red]q[/red]", **dict.fromkeys(facts, attack))
    register(connection, "deep", functions="[" * 100_000, limits='{"a": 1}', clock_ms="1e999")
    connection.sadd("rq:workers", attack, "rq:worker:none")
    connection.set("rq:worker:none", attack, ex=60)
    connection.sadd("rq:queues", attack, "rq:queue:text")
    connection.set("rq:queue:text", attack, ex=60)
    for command in (info.command, doctor.command):
        for arguments in ([], ["--json"]):
            done = CliRunner().invoke(command, ["--redis", redis_url, *arguments])
            assert done.exit_code in (0, 1), done.output
            assert done.exception is None or isinstance(done.exception, SystemExit)
    assert not (tmp_path / "executed").exists()


INFO = """
import sys
from click.testing import CliRunner
from worker.ops.commands import doctor, info

def peak_mb():
    # the most memory since `forget`; Linux
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024

def forget():
    with open("/proc/self/clear_refs", "w") as switch:
        switch.write("5")

for command in (info.command, doctor.command):
    CliRunner().invoke(command, ["--redis", "redis://127.0.0.1:1/0"])
forget()
before = peak_mb()
for command in (info.command, doctor.command):
    done = CliRunner().invoke(command, ["--redis", sys.argv[1], "--json"])
    print(done.exit_code, "rewards" in done.output)
print(peak_mb() - before)
"""


def test_huge_values_are_read_around_in_bounded_memory(redis_url, connection):
    register(connection, "real")
    huge = b"x" * 40_000_000
    for number in range(2):
        register(connection, f"huge{number}", version="1")
        connection.hset(f"rq:worker:huge{number}", "state", huge)
        connection.hset(worker_key(f"huge{number}"), "functions", huge)
    connection.sadd("rq:queues", "rq:queue:huge")
    connection.rpush("rq:queue:huge", huge)
    del huge
    done = subprocess.run(
        [sys.executable, "-c", INFO, redis_url], capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    first, second, grown_mb = done.stdout.splitlines()
    assert first == "0 True"
    assert second == "1 True"  # the queue `huge` has no worker

    assert float(grown_mb) < 200
