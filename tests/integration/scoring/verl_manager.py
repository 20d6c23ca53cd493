"""Reward managers as people write them for verl 0.9; nothing here knows this project."""

from __future__ import annotations

import asyncio
import inspect


class NaiveLikeManager:
    """verl's naive manager in its own words: last row, decode, call, report."""

    def __init__(
        self,
        config,
        tokenizer,
        compute_score,
        reward_router_address=None,
        reward_model_tokenizer=None,
    ):
        self.config, self.tokenizer, self.compute_score = config, tokenizer, compute_score
        self.is_async_reward_score = inspect.iscoroutinefunction(compute_score)
        self.bonus = config.reward.get("reward_kwargs", {}).get("bonus", 0.0)

    async def run_single(self, data):
        assert len(data) >= 1
        data_item = data[-1:][0]
        response_ids = data_item.batch["responses"]
        response_length = response_ids.shape[-1]
        valid = data_item.batch["attention_mask"][-response_length:].sum()
        text = await asyncio.get_running_loop().run_in_executor(
            None,
            lambda: self.tokenizer.decode(response_ids[:valid], skip_special_tokens=True),
        )
        given = {
            "data_source": data_item.non_tensor_batch["data_source"],
            "solution_str": text,
            "ground_truth": data_item.non_tensor_batch["reward_model"]["ground_truth"],
            "extra_info": data_item.non_tensor_batch.get("extra_info", {}),
        }
        if self.is_async_reward_score:
            result = await self.compute_score(**given)
        else:
            result = await asyncio.get_running_loop().run_in_executor(
                None, lambda: self.compute_score(**given)
            )
        info = dict(result) if isinstance(result, dict) else {"acc": result}
        score = result["score"] if isinstance(result, dict) else result
        return {"reward_score": score + self.bonus, "reward_extra_info": {**info, "text": text}}


class JointManager(NaiveLikeManager):
    """Rewards all outputs of the trajectory together."""

    async def run_single(self, data):
        lengths = [int(data[i].batch["response_mask"].sum()) for i in range(len(data))]
        return {"reward_score": float(sum(lengths)), "reward_extra_info": {"lengths": lengths}}


class OlderManager:
    """The callable kind, verl's before 0.7."""

    def __init__(self, tokenizer, num_examine, compute_score=None, reward_fn_key="data_source"):
        self.tokenizer, self.compute_score, self.key = tokenizer, compute_score, reward_fn_key

    def __call__(self, data, return_dict=False):
        import numpy as np

        rewards = np.zeros(np.asarray(data.batch["responses"]).shape, np.float32)
        seen = []
        for i in range(len(data)):
            length = int(data.non_tensor_batch["response_len"][i])
            rewards[i, length - 1] = 0.5
            seen.append(data[i].non_tensor_batch[self.key])
        return {"reward_tensor": rewards, "reward_extra_info": {"source": seen}}


class HangingManager(NaiveLikeManager):
    """Never answers."""

    async def run_single(self, data):
        await asyncio.sleep(1000)


class WrongManager(NaiveLikeManager):
    """Forgets what it is for."""

    async def run_single(self, data):
        return {"score": 1.0}


class PickyManager:
    """Cannot be built."""

    def __init__(self, config, **kwargs):
        raise ValueError("config.reward.window is missing")


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """The function the manager calls."""
    return {"score": float(ground_truth in solution_str), "source": data_source}
