"""`rewardpool score`: real workers on an embedded server, one result line for every input line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "worker.ops.cli")

#: A function of the user's own: cheap, and it says what it saw.
OWN = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, outputs=None):
    return {
        "score": float(len(outputs)),
        "texts": [output.text for output in outputs],
        "sampled": [
            None if output.response_mask is None else int(sum(output.response_mask))
            for output in outputs
        ],
    }
"""

SLOW = """
import time

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    time.sleep(float(solution_str))
    return 1.0
"""


def score(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command on its own server; nothing of the caller's environment leads elsewhere."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REDIS_URL", "REWARDPOOL_"))}
    return subprocess.run(
        [*COMMAND, "score", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=170,
        **options,
    )


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def maths(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The real maths rollouts, and the same with five lines spoilt, scored in one run."""
    folder = tmp_path_factory.mktemp("maths")
    good = (data / "math_rollouts.jsonl").read_bytes().splitlines()
    tower = {"id": "tower", "response": r"\boxed{9^{9^{9^{9}}}}", "ground_truth": "3"}
    first = json.loads(good[2])
    without_truth = {k: v for k, v in first.items() if k != "ground_truth"} | {"id": "no-truth"}
    surrogate = {**first, "id": "surrogate", "response": "\\boxed{32} \ud800"}
    huge = {**first, "id": "huge", "response": "word " * 400_000 + "\\boxed{32}"}
    spoilt = [
        good[0][: len(good[0]) // 2],
        b"",
        *(json.dumps(row).encode() for row in (without_truth, surrogate, huge, tower)),
    ]
    mixed = [*good[:3], *spoilt, *good[3:]]
    file = folder / "rollouts.jsonl"
    file.write_bytes(b"\n".join(mixed) + b"\n")
    done = score(file, "--out", folder / "rewards.jsonl", "--json", cwd=folder)
    return {
        "done": done,
        "good": [json.loads(line) for line in good],
        "results": lines((folder / "rewards.jsonl").read_text()),
        "summary": json.loads(done.stdout),
    }


def test_there_are_as_many_results_as_lines_in_their_order(maths: dict[str, Any]) -> None:
    ids = [result["id"] for result in maths["results"]]
    good = [record["id"] for record in maths["good"]]

    assert ids == [
        *good[:3],
        "line-4",
        "line-5",
        "no-truth",
        "surrogate",
        "huge",
        "tower",
        *good[3:],
    ]
    for result in maths["results"]:
        assert list(result) == "id status reward extra error attempts wait_s run_s".split()


def test_the_verifier_agrees_with_the_stored_rewards_of_nine_in_ten(maths: dict[str, Any]) -> None:
    results = {result["id"]: result for result in maths["results"]}
    for record in maths["good"]:
        if record["id"] != "math_with_judge-1":
            assert results[record["id"]]["status"] == "scored", results[record["id"]]
            assert results[record["id"]]["reward"] == record["library_reward"]


def test_a_comparison_that_does_not_end_is_a_timeout_and_no_zero(maths: dict[str, Any]) -> None:
    results = {row["id"]: row for row in maths["results"]}
    tower = results["tower"]

    assert (tower["status"], tower["reward"]) == ("failed", None)
    assert tower["error"]["kind"] == "timeout"
    # This one takes some seconds of a free core: it ends in time or fails, and is never wrong.
    slow = results["math_with_judge-1"]
    if slow["status"] == "scored":
        assert slow["reward"] == 1.0
    else:
        assert slow["error"]["kind"] == "timeout"


def test_spoilt_lines_say_what_is_wrong_with_them(maths: dict[str, Any]) -> None:
    results = {result["id"]: result for result in maths["results"]}

    assert results["line-4"]["error"]["kind"] == "bad_input"
    assert results["line-4"]["error"]["message"].startswith("line 4: not JSON")
    assert results["line-5"]["error"]["message"] == "line 5: the line is empty"
    assert results["no-truth"]["error"]["kind"] == "bad_input"
    assert "ground_truth" in results["no-truth"]["error"]["message"]
    assert results["surrogate"]["error"]["kind"] == "bad_input"
    assert "lone surrogate" in results["surrogate"]["error"]["message"]


def test_two_megabytes_of_text_are_a_row_like_any_other(maths: dict[str, Any]) -> None:
    (result,) = [row for row in maths["results"] if row["id"] == "huge"]

    assert result["status"] == "scored", result
    assert result["reward"] == 1.0


def test_the_summary_adds_up_and_says_what_went_to_the_verifier(maths: dict[str, Any]) -> None:
    done, summary = maths["done"], maths["summary"]

    assert done.returncode == 1, done.stderr
    assert summary["rows"] == len(maths["results"])
    failed = [row for row in maths["results"] if row["status"] == "failed"]
    assert summary["failed"] == len(failed) == sum(summary["failures"].values())
    assert summary["to_maths_verifier"] == 12
    assert len(summary["slowest"]) == 5
    took = sorted((row["wait_s"] + row["run_s"] for row in maths["results"]), reverse=True)
    shown = [row["wait_s"] + row["run_s"] for row in summary["slowest"]]
    assert shown == pytest.approx(took[: len(shown)], abs=1e-4)
    (tower,) = [row for row in maths["results"] if row["id"] == "tower"]
    assert tower["run_s"] >= 9  # rows behind it may well have waited longer than it ran


def test_turns_reach_a_function_as_outputs_with_tool_text_masked(
    data: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    file = data / "tool_trajectories.jsonl"

    done = score(file, "--reward", "own.py:compute_score", "--workers", 1, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert len(lines(done.stdout)) == len(records)
    for result, record in zip(lines(done.stdout), records, strict=True):
        spoken = [len(t["content"]) for t in record["turns"] if t["role"] == "assistant"]
        assert result["reward"] == len(spoken)
        assert result["extra"]["sampled"] == spoken


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--limits", "judge"], "write NAME:rpm=60"),
        (["--limits", "judge:rmp=60"], "'rmp=60' is none of"),
        (["--limits", "judge:rpm=-1"], "limits.judge.rpm"),
        (["--workers", "0"], "--workers 0 needs --redis"),
        (["--reward", "nowhere.py:compute_score"], "nowhere.py"),
        (["--reward", "builtin:gsm9k"], "did you mean 'gsm8k'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "rollouts.jsonl"
    file.write_text('{"response": "x"}\n')

    done = score(file, *arguments, cwd=tmp_path)

    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreachable_redis_is_said_clearly(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    file.write_text('{"response": "x"}\n')

    done = score(file, "--redis", "redis://127.0.0.1:9/0", cwd=tmp_path)

    assert done.returncode not in (0, 2)
    assert "Traceback" not in done.stderr
    assert "127.0.0.1:9" in done.stderr


def test_ctrl_c_stops_everything_and_keeps_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    file = tmp_path / "rollouts.jsonl"
    file.write_text('{"response": "0"}\n{"response": "100"}\n')
    out = tmp_path / "rewards.jsonl"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REDIS_URL", "REWARDPOOL_"))}
    process = subprocess.Popen(
        [*COMMAND, "score", str(file), "--reward", "slow.py:compute_score", "--out", str(out)],
        cwd=tmp_path,
        env={**env, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        if sum("rq.cli" in " ".join(_command(child)) for child in children) >= 2:
            break
        time.sleep(0.1)
    time.sleep(3)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert not list(tmp_path.glob("rewardpool-*")), "temporary folders were left"


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
