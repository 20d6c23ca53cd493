"""Rows as verl builds them, and a reward function that tells what it was given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: Rewards the exact text; `extra_info["mode"]` asks for trouble.
FUNCTION = """
import json, time

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    mode = extra_info.get("mode")
    if mode == "slow":
        time.sleep(60)
    if mode == "raise":
        raise RuntimeError("the judge fell over")
    if mode == "number":
        return float(solution_str == ground_truth)
    if mode == "none":
        return None
    found = {"score": float(solution_str == ground_truth), "text": solution_str}
    if mode == "ragged":
        found |= {"steps": [1, 2], "notes": {"depth": 2}, "bonus": 1}
    return found


def all_outputs(data_source, solution_str, ground_truth, extra_info=None, *, outputs):
    return {"score": float(len(outputs)), "text": "|".join(one.text for one in outputs)}
"""


@dataclass
class Row:
    """One trajectory in plain text."""

    texts: list[str]
    truth: str = "answer"
    prompts: list[str] | None = None
    source: str = "exact"
    mode: str | None = None


def write_function(folder: Path) -> Path:
    """Return the file with the functions above."""
    path = folder / "exact.py"
    path.write_text(FUNCTION)
    return path


def batch(rows: list[Row], tokenizer: Any, **more: list[Any]) -> Any:
    """A DataProto in the batch layout: prompts padded left, responses right."""
    import numpy as np
    import torch
    from verl import DataProto

    prompts = [tokenizer.encode((row.prompts or ["ask"])[-1]) for row in rows]
    responses = [tokenizer.encode(row.texts[-1]) for row in rows]
    wide_p, wide_r = max(map(len, prompts)), max(map(len, responses)) + 3
    pad = tokenizer.pad_token_id
    left = [[pad] * (wide_p - len(one)) + one for one in prompts]
    right = [one + [pad] * (wide_r - len(one)) for one in responses]
    mask = [
        [0] * (wide_p - len(p)) + [1] * len(p) + [1] * len(r) + [0] * (wide_r - len(r))
        for p, r in zip(prompts, responses, strict=True)
    ]
    ids = [[*a, *b] for a, b in zip(left, right, strict=True)]
    tensors = {"prompts": left, "responses": right, "input_ids": ids, "attention_mask": mask}
    fields = {
        "data_source": [row.source for row in rows],
        "reward_model": [{"ground_truth": row.truth, "style": "rule"} for row in rows],
        "extra_info": [{"index": n, "mode": row.mode} for n, row in enumerate(rows)],
        "uid": [f"u{n}" for n in range(len(rows))],
        **more,
    }
    columns = {}
    for name, values in fields.items():
        columns[name] = np.empty(len(rows), object)
        columns[name][:] = values
    return DataProto.from_dict(
        tensors={name: torch.tensor(value) for name, value in tensors.items()},
        non_tensors=columns,
    )


def agent_outputs(row: Row, tokenizer: Any) -> list[Any]:
    """verl's own AgentLoopOutput for each output of a row."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    prompts = row.prompts or ["ask"] * len(row.texts)
    return [
        AgentLoopOutput(
            prompt_ids=tokenizer.encode(prompt),
            response_ids=tokenizer.encode(text),
            response_mask=[1] * len(tokenizer.encode(text)),
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={"turn_scores": [0.5], "tool_rewards": []},
        )
        for prompt, text in zip(prompts, row.texts, strict=True)
    ]


def fields_of(row: Row) -> dict[str, Any]:
    """What verl's agent loop has beside the outputs."""
    return {
        "data_source": row.source,
        "reward_model": {"ground_truth": row.truth, "style": "rule"},
        "extra_info": {"index": 3, "mode": row.mode},
        "raw_prompt": [{"role": "user", "content": "ask"}, {"role": "user", "content": "again"}],
        "uid": "u7",
        "session_id": 0,
        "index": 3,
    }


def agent_worker(reward_loop: Any) -> Any:
    """verl's real AgentLoopWorker with nothing but what its scoring needs; no Ray is started."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    worker = object.__new__(AgentLoopWorker)
    worker.processor = worker.mm_processor_kwargs = None
    handle = SimpleNamespace(compute_score=SimpleNamespace(remote=reward_loop.compute_score))
    worker.reward_loop_worker_handles = [handle]
    return worker


def verl_config(tokenizer: str, reward_kwargs: dict[str, object]) -> dict[str, object]:
    """The parts of verl's configuration that its reward loop reads."""
    return {
        "actor_rollout_ref": {"model": {"tokenizer_path": tokenizer, "path": tokenizer}},
        "reward": {
            "num_workers": 1,
            "custom_reward_function": {"path": None, "name": "compute_score"},
            "reward_manager": {
                "source": "importlib",
                "name": "QueueRewardManager",
                "module": {"path": "pkg://queue_client.verl"},
            },
            "reward_model": {"enable": False},
            "reward_kwargs": reward_kwargs,
        },
    }
