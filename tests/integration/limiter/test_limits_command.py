"""`rewardpool limits`: what an operator sees and changes."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from limiter import Limiter, Limits
from worker.ops.cli import cli


def run(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["limits", *args], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def judge(redis_url: str) -> Limiter:
    limiter = Limiter(redis_url, Limits(name="judge", max_concurrent=3, rpm=600))
    limiter.sync.acquire(timeout_s=0).release()
    limiter.sync.close()
    return limiter


def test_it_shows_every_limit(redis_url: str, judge: Limiter) -> None:
    shown = run("--redis", redis_url)
    assert "judge" in shown
    assert "0/3" in shown
    assert "600/min" in shown
    (data,) = json.loads(run("--redis", redis_url, "--json"))
    assert (data["name"], data["grants"], data["limits"]["rpm"]) == ("judge", 1, 600)


def test_it_says_that_there_are_none(redis_url: str) -> None:
    assert "no limits yet" in run("--redis", redis_url)


def test_set_changes_a_limit_for_all_and_reset_undoes_it(redis_url: str, judge: Limiter) -> None:
    options = ("--rpm", "500", "--tpm", "90_000", "--max-concurrent", "none", "--burst-s", "2.5")
    (data,) = json.loads(run("set", "judge", *options, "--redis", redis_url, "--json"))
    limits = data["limits"]
    assert (limits["rpm"], limits["tpm"], limits["max_concurrent"]) == (500, 90_000, None)
    assert (limits["burst_s"], data["source"]) == (2.5, "operator")
    (data,) = json.loads(run("--redis", redis_url, "reset", "judge", "--json"))
    assert (data["limits"]["rpm"], data["source"]) == (600, "declared")


def test_resume_lifts_a_pause(redis_url: str, judge: Limiter) -> None:
    limiter = Limiter(redis_url, judge.limits)
    limiter.sync.throttle(retry_after_s=100)
    assert "judge: resumed" in run("resume", "judge", "--redis", redis_url)
    assert limiter.sync.usage().pause_s == 0
    limiter.sync.close()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("set", "nobody", "--rpm", "5"), "nobody: there is no limit"),
        (("set", "judge", "--rpm", "5.5"), "--rpm: must be a number or none, got '5.5'"),
        (("set", "judge", "--rpm", "-5"), "rpm: must not be negative, got -5"),
        (("set", "judge"), "nothing to change"),
        (("resume", "nobody"), "nobody: there is no limit"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    redis_url: str, judge: Limiter, args: tuple[str, ...], words: str
) -> None:
    output = run(*args, "--redis", redis_url, code=2)
    assert words in output
    assert len(output.strip().splitlines()) == 1


def test_an_unreachable_redis_is_said_in_one_line() -> None:
    assert "Redis is unavailable" in run("--redis", "redis://127.0.0.1:1/0", code=2)


def test_a_limit_of_the_settings_file_can_be_set_before_it_is_used(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "rewardpool.toml"
    file.write_text("[limits.sandbox]\nmax_concurrent = 8\n")
    options = ("--rpm", "5", "--config", str(file), "--redis", redis_url, "--json")
    (data,) = json.loads(run("set", "sandbox", *options))
    assert (data["limits"]["max_concurrent"], data["limits"]["rpm"]) == (8, 5)
    assert data["source"] == "operator"


def test_watch_shows_a_live_table(redis_url: str, judge: Limiter) -> None:
    command = [sys.executable, "-m", "worker.ops.cli", "limits", "--watch", "--every-s", "0.1"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*command, "--redis", redis_url],
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200", "LINES": "40"},
    )
    os.close(theirs)
    seen = b""
    try:
        while seen.count(b"judge") < 3:  # the table is drawn again and again
            readable, _, _ = select.select([ours], [], [], 60)
            assert readable, seen
            seen += os.read(ours, 1 << 16)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"in flight" in seen
