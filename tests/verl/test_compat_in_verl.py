"""The classes by their old names with verl's own DataProto, registry and default function."""

from __future__ import annotations

import asyncio
import time

import pytest

pytestmark = pytest.mark.verl
pytest.importorskip("verl.experimental.reward_loop")

from queue_client.compat import RateLimitedRewardManager  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch):
    for name in ("REDIS_URL", "REWARDPOOL_REDIS__URL"):
        monkeypatch.delenv(name, raising=False)
    yield
    RateLimitedRewardManager._class_initialized = False
    RateLimitedRewardManager._semaphore = None
    RateLimitedRewardManager._rpm_limiter = None
    RateLimitedRewardManager._tpm_limiter = None


def rows(tokenizer, *texts: str, truth: str = "right"):
    """Responses and a mask of ones alone, as the tests of verl's manager build them."""
    import torch
    from verl import DataProto

    ids = [tokenizer.encode(text) for text in texts]
    width = max(map(len, ids))
    pad = tokenizer.pad_token_id
    return DataProto.from_dict(
        tensors={
            "responses": torch.tensor([one + [pad] * (width - len(one)) for one in ids]),
            "attention_mask": torch.tensor(
                [[1] * len(one) + [0] * (width - len(one)) for one in ids]
            ),
        },
        non_tensors={
            "data_source": ["mine"] * len(ids),
            "reward_model": [{"ground_truth": truth}] * len(ids),
            "extra_info": [{}] * len(ids),
        },
    )


def manager(tokenizer, function, **limits):
    """A manager on verl's kind of configuration."""
    from omegaconf import DictConfig

    config = DictConfig({"reward": limits})
    RateLimitedRewardManager.init_class(config, tokenizer)
    return RateLimitedRewardManager(config=config, tokenizer=tokenizer, compute_score=function)


async def exact(data_source, solution_str, ground_truth, extra_info=None):
    """1.0 for the exact text."""
    return float(solution_str == ground_truth)


async def test_right_and_wrong_answers(tokenizer) -> None:
    judge = manager(tokenizer, exact, max_concurrent=4)
    data = rows(tokenizer, "right", "wrong answer")
    found = await asyncio.gather(*(judge.run_single(data[i : i + 1]) for i in range(2)))
    assert [one["reward_score"] for one in found] == [1.0, 0.0]


async def test_two_calls_at_three_a_minute_of_tokens(tokenizer) -> None:
    judge = manager(
        tokenizer, exact, max_tpm=6000, estimated_tokens_per_request=2000, max_concurrent=10
    )
    data = rows(tokenizer, "right")
    began = time.monotonic()
    await judge.run_single(data)
    assert time.monotonic() - began < 2
    await judge.run_single(data)
    assert time.monotonic() - began >= 18


def test_a_batch_is_scored_by_a_plain_call(tokenizer) -> None:
    data = rows(tokenizer, "right", "wrong answer")
    judge = manager(tokenizer, exact, max_concurrent=4)
    tensor = judge(data)
    assert tensor.shape == data.batch["responses"].shape
    assert tensor[0, len("right") - 1] == 1.0
    assert tensor.sum() == 1.0
    found = judge(data, return_dict=True)
    assert found["reward_tensor"].equal(tensor)
    assert found["reward_extra_info"]["acc"] == [1.0, 0.0]


async def test_a_plain_call_works_inside_a_running_loop(tokenizer) -> None:
    found = manager(tokenizer, exact)(rows(tokenizer, "right", "wrong"), return_dict=True)
    assert found["reward_extra_info"]["acc"] == [1.0, 0.0]


def test_rows_with_other_keys_make_columns_of_one_length(tokenizer) -> None:
    async def ragged(data_source, solution_str, ground_truth, extra_info=None):
        if solution_str == "bad":
            raise RuntimeError("no")
        return {"score": 1.0, "depth": 3} if solution_str == "right" else 0.5

    found = manager(tokenizer, ragged)(rows(tokenizer, "bad", "right", "other"), return_dict=True)
    assert {len(column) for column in found["reward_extra_info"].values()} == {3}
    assert found["reward_extra_info"]["depth"] == [None, 3, None]


def test_rewards_that_are_there_are_handed_back(tokenizer) -> None:
    import torch

    data = rows(tokenizer, "right")
    data.batch["rm_scores"] = torch.ones(1, 5)
    judge = manager(tokenizer, exact)
    assert judge(data).equal(torch.ones(1, 5))
    data.meta_info["reward_extra_keys"] = ["uid"]
    data.non_tensor_batch["uid"] = ["a"]
    assert judge(data, return_dict=True)["reward_extra_info"] == {"uid": ["a"]}


def test_verls_default_function_scores_without_one_of_ones_own(tokenizer) -> None:
    judge = manager(tokenizer, None)
    data = rows(tokenizer, "so #### 42", truth="42")
    data.non_tensor_batch["data_source"][0] = "openai/gsm8k"
    assert judge(data, return_dict=True)["reward_extra_info"]["acc"] == [1.0]
    data.non_tensor_batch["data_source"][0] = "nobody/knows"
    with pytest.raises(NotImplementedError, match="nobody/knows"):
        judge(data)


async def test_several_outputs_are_read_by_their_lengths(tokenizer) -> None:
    from types import SimpleNamespace

    from verl_rows import Row, agent_outputs, agent_worker, fields_of

    judge = manager(tokenizer, exact)
    row = Row(
        ["x", "a much longer output", "right"], prompts=["a", "ask again", "b"], truth="right"
    )
    outputs = agent_outputs(row, tokenizer)
    await agent_worker(SimpleNamespace(compute_score=judge.run_single))._compute_score(
        outputs, fields_of(row)
    )
    assert outputs[-1].reward_score == 1.0


class TestRegistry:
    """verl's own registry takes the class like any other."""

    def test_it_is_registered_and_found(self) -> None:
        from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls, register

        assert register("rewardpool_limited")(RateLimitedRewardManager) is RateLimitedRewardManager
        assert get_reward_manager_cls("rewardpool_limited") is RateLimitedRewardManager
        register("rewardpool_limited")(RateLimitedRewardManager)  # again: harmless

    def test_a_name_that_is_taken_stays_so(self) -> None:
        from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls, register

        before = get_reward_manager_cls("rate_limited")
        with pytest.raises(ValueError, match="already been registered"):
            register("rate_limited")(RateLimitedRewardManager)
        assert get_reward_manager_cls("rate_limited") is before

    @pytest.mark.parametrize("name", ["unknown", "", "RATE_LIMITED"])
    def test_an_unknown_name_is_an_error(self, name: str) -> None:
        from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

        with pytest.raises(ValueError, match="Unknown reward manager"):
            get_reward_manager_cls(name)

    async def test_verls_reward_loop_takes_it_by_path(self, tokenizer_folder, tokenizer) -> None:
        from omegaconf import OmegaConf
        from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
        from verl_rows import verl_config

        config = verl_config(tokenizer_folder, {})
        config["reward"]["reward_manager"]["name"] = "RateLimitedRewardManager"
        config["reward"]["reward_manager"]["module"]["path"] = "pkg://queue_client.compat"
        config["reward"]["max_rpm"] = 600
        data = rows(tokenizer, "so #### 42", truth="42")
        data.non_tensor_batch["data_source"][0] = "openai/gsm8k"
        found = await RewardLoopWorker(OmegaConf.create(config)).compute_score_batch(data)
        assert found[0]["reward_score"] == 1.0
