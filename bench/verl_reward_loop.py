"""Rows a second of verl's own reward loop behind Ray actors; run by the Python that has verl.

    VERL_PYTHON -P bench/verl_reward_loop.py TOKENIZER ROWS TOKENS WORKERS

Prints one JSON object; `bench/scoring.py --verl VERL_PYTHON` calls it for its ratios.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

TRIES = 3


def main() -> None:
    """Measure both ways of asking: in chunks, and row by row as agent loops do."""
    tokenizer, rows, tokens, workers = sys.argv[1], *map(int, sys.argv[2:5])
    import ray
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": tokenizer, "tokenizer_path": None}},
            "reward": {
                "reward_model": {"enable": False},
                "custom_reward_function": {"path": None, "name": None},
                "reward_manager": {"source": "register", "name": "naive"},
                "sandbox_fusion": {"url": None, "max_concurrent": 64, "memory_limit_mb": 1024},
            },
        }
    )
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    actor = ray.remote(num_cpus=1)(RewardLoopWorker)
    actors = [actor.remote(config) for _ in range(workers)]
    data = rows_of(tokenizer, rows, tokens)
    ray.get([one.compute_score_batch.remote(data[:16]) for one in actors])
    batched = single = 0.0
    few = min(rows, 500)
    for _ in range(TRIES):
        began = time.perf_counter()
        pairs = zip(actors, data.chunk(workers), strict=True)
        done = ray.get([one.compute_score_batch.remote(chunk) for one, chunk in pairs])
        batched = max(batched, rows / (time.perf_counter() - began))
        assert all(row["reward_score"] == 1.0 for chunk in done for row in chunk)
        began = time.perf_counter()
        turns = [random.choice(actors) for _ in range(few)]
        ray.get([one.compute_score.remote(data[at : at + 1]) for at, one in enumerate(turns)])
        single = max(single, few / (time.perf_counter() - began))
    ray.shutdown()
    print(json.dumps({"batched": batched, "single": single}))


def rows_of(path: str, count: int, tokens: int) -> Any:
    """A DataProto in verl's classic padding; responses end in the answer."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer
    from verl import DataProto

    tokenizer = AutoTokenizer.from_pretrained(path)
    words = tokenizer.encode(
        Path(__file__).with_name("scoring.py").read_text(), add_special_tokens=False
    )
    tail = tokenizer.encode("\n#### 42", add_special_tokens=False)
    draw = random.Random(0)
    ids = [draw.choices(words, k=tokens - len(tail)) + tail for _ in range(count)]
    responses = torch.tensor(ids)
    prompts = torch.full((count, 100), 5)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "attention_mask": torch.ones((count, 100 + tokens), dtype=torch.long),
        },
        non_tensors={
            "data_source": np.array(["openai/gsm8k"] * count, object),
            "reward_model": np.array([{"ground_truth": "42"} for _ in range(count)], object),
            "extra_info": np.array([{} for _ in range(count)], object),
            "__num_turns__": np.array([2] * count, object),
        },
    )


if __name__ == "__main__":
    main()
