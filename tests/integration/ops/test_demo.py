"""The demo: real workers, a judge with a quota, exactly the expected rows fail, nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from worker.ops.commands.demo import unexpected

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "rollouts.jsonl"


def demo(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REDIS_URL", "REWARDPOOL_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "worker.ops.cli", "demo", *arguments],
        cwd=ROOT,
        env={**env, "TMPDIR": str(folder), "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    process = demo("--out", str(folder / "rewards.jsonl"), folder=folder)
    out, errors = process.communicate(timeout=150)
    assert process.returncode == 0, out + errors
    assert "Traceback" not in errors
    return out


def test_the_example_holds_what_it_promises() -> None:
    lines = EXAMPLE.read_bytes().splitlines()
    text = EXAMPLE.read_text()

    assert len(lines) >= 64
    assert sum(b"unscorable-" in line for line in lines) == 4
    assert text.count('"response_mask"') >= 6
    assert text.count('"role": "tool"') >= 4
    assert any(len(json.loads(line).get("outputs", ())) >= 3 for line in lines if line[-1:] == b"}")
    assert text.count("example/judged") > 28, "the limit has to make some rows wait"


def test_it_shows_rewards_failures_times_and_the_limit(printed: str) -> None:
    for title in ("Rewards by data source", "Failures by kind", "Where the time went"):
        assert title in printed
    assert re.search(r"example/judged\s.*\b32\b", printed)
    assert re.search(r"bad_input\s.*\b4\b", printed)
    assert "90 of 90 rows" in printed


def test_the_judge_never_had_to_refuse(printed: str) -> None:
    assert re.search(r"calls the judge saw\s+│\s+32\b", printed)
    assert re.search(r"429s from the judge\s+│\s+0\b", printed)
    assert re.search(r"granted\s+│\s+32\b", printed)


def test_exactly_the_rows_fail_that_cannot_be_scored(printed: str, folder: Path) -> None:
    results = (folder / "rewards.jsonl").read_text()

    assert unexpected(EXAMPLE.read_bytes(), results) == []
    spoilt = results.replace('"status": "scored"', '"status": "failed"', 1)
    assert len(unexpected(EXAMPLE.read_bytes(), spoilt)) == 1


def test_it_leaves_no_folder_behind(printed: str, folder: Path) -> None:
    assert [entry.name for entry in folder.iterdir()] == ["rewards.jsonl"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_it_is_stopped_half_way(how: signal.Signals, tmp_path: Path) -> None:
    process = demo(folder=tmp_path)
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while len(children) < 6 and time.monotonic() < deadline:  # watchers, server and workers
        assert process.poll() is None, process.communicate()
        children = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)

    assert "Traceback" not in errors
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    deadline = time.monotonic() + 10
    while (left := list(tmp_path.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
