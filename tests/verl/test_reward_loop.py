"""verl's real RewardLoopWorker, with our manager, over two real `rq worker` processes."""

from __future__ import annotations

import copy
import json
import math
import pickle

import pytest
from verl_rows import Row, agent_outputs, agent_worker, batch, fields_of, verl_config

pytestmark = pytest.mark.verl
pytest.importorskip("verl.experimental.reward_loop")

from queue_client.verl import NoReward, QueueRewardManager, score_outputs  # noqa: E402
from queue_client.verl.results import KEYS  # noqa: E402


def assemble(loop, data, outputs):
    """What verl's RewardLoopManager makes of the rows' results: a column a key of row 0."""
    import numpy as np

    scores = [output["reward_score"] for output in outputs]
    infos = [output["reward_extra_info"] for output in outputs]
    columns = {key: np.array([info[key] for info in infos]) for key in infos[0]}
    return loop.reward_manager.assemble_rm_scores(data, scores), columns


async def test_a_batch_is_scored_row_by_row_whatever_becomes_of_each(make_loop, tokenizer) -> None:
    reward_loop = make_loop(on_failure="zero", extra_keys=["text", "notes", "bonus"])
    rows = [
        Row(["answer"]),
        Row(["wrong"]),
        Row(["answer"], mode="slow"),
        Row(["answer"], mode="raise"),
        Row(["answer"], mode="ragged"),
        Row(["answer"], mode="number"),
    ]
    data = batch(rows, tokenizer)
    before = copy.deepcopy(data.non_tensor_batch)

    outputs = await reward_loop.compute_score_batch(data)
    rm_scores, columns = assemble(reward_loop, data, outputs)

    assert [one["reward_score"] for one in outputs] == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    assert columns["failed"].tolist() == [False, False, True, True, False, False]
    assert columns["timeout"].tolist() == [False, False, True, False, False, False]
    assert columns["kind"].tolist() == [None, None, "timeout", "scorer_error", None, None]
    assert "the judge fell over" in columns["error"][3]
    assert columns["text"].tolist()[:2] == ["answer", "wrong"]
    assert json.loads(columns["notes"][4]) == {"depth": 2}
    assert columns["bonus"].tolist() == [None, None, None, None, 1, None]
    assert json.loads(columns["extra"][4])["steps"] == [1, 2]
    for output in outputs:
        info = output["reward_extra_info"]
        assert list(info) == [*KEYS, "text", "notes", "bonus"]
        assert all(type(v) in (int, float, bool, str, type(None)) for v in info.values())
        assert info["wait_s"] >= 0
        assert info["run_s"] >= 0
    lens = [len(row.texts[-1]) for row in rows]
    for row, (length, output) in enumerate(zip(lens, outputs, strict=True)):
        assert rm_scores[row, length - 1] == output["reward_score"]
        assert rm_scores[row].sum() == output["reward_score"]
    for name, column in before.items():
        assert data.non_tensor_batch[name].tolist() == column.tolist()


async def test_verls_validation_metrics_take_the_columns(make_loop, tokenizer) -> None:
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    reward_loop = make_loop(on_failure="zero", extra_keys=["bonus"])
    data = batch(
        [Row(["answer"]), Row(["answer"], mode="raise"), Row(["no"], mode="ragged")], tokenizer
    )
    outputs = await reward_loop.compute_score_batch(data)
    infos = {
        key: [output["reward_extra_info"][key] for output in outputs]
        for key in outputs[0]["reward_extra_info"]
    }

    found = process_validation_metrics(["exact"] * 3, ["a", "a", "b"], infos)

    assert found["exact"]["acc"]["mean@2"] == 0.5
    assert found["exact"]["failed"]["mean@2"] == 0.5
    assert "error" not in found["exact"]


async def test_three_outputs_of_unequal_lengths_are_read_right(make_loop, tokenizer) -> None:
    """Through verl's own `_compute_score`, whose naive manager reads other texts."""
    reward_loop = make_loop(extra_keys=["text"])
    cases = [
        ["a longer first answer", "mid", "answer"],
        ["x", "a much longer second output", "answer"],
        ["one", "two", "answer"],
    ]
    prompts = ["ask", "ask again, and at some length so that widths differ", "a"]
    for texts in cases:
        row = Row(texts, prompts=prompts)
        outputs, fields = agent_outputs(row, tokenizer), fields_of(row)
        before = copy.deepcopy(fields)

        await agent_worker(reward_loop)._compute_score(outputs, fields)

        assert outputs[-1].reward_score == 1.0
        assert outputs[-1].extra_fields["reward_extra_info"]["text"] == "answer"
        assert fields == before


async def test_verls_naive_manager_reads_the_same_rows_wrong(tokenizer, tokenizer_folder) -> None:
    """The reason for explicit lengths; if this fails, verl was mended."""
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    seen = []

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        seen.append(solution_str)
        return 0.0

    naive = NaiveRewardManager(config=None, tokenizer=tokenizer, compute_score=compute_score)

    class Loop:
        compute_score = staticmethod(naive.run_single)

    row = Row(["x", "a much longer second output", "answer"], prompts=["ask", "ask again", "a"])
    await agent_worker(Loop())._compute_score(agent_outputs(row, tokenizer), fields_of(row))
    assert seen != ["answer"]


async def test_a_failed_row_raises_by_default(make_loop, tokenizer) -> None:
    reward_loop = make_loop()
    data = batch([Row(["answer"], mode="raise"), Row(["answer"])], tokenizer)
    with pytest.raises(NoReward, match="the judge fell over") as caught:
        await reward_loop.compute_score(data[:1])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.outcome.kind == "scorer_error"
    assert (await reward_loop.compute_score(data[1:]))["reward_score"] == 1.0


async def test_a_failed_row_is_nan_if_so_chosen(make_loop, tokenizer) -> None:
    reward_loop = make_loop(on_failure="nan")
    data = batch([Row(["answer"], mode="none"), Row(["answer"])], tokenizer)
    skipped, scored = await reward_loop.compute_score_batch(data)
    assert math.isnan(skipped["reward_score"])
    assert skipped["reward_extra_info"]["kind"] == "skipped"
    assert scored["reward_score"] == 1.0


async def test_every_output_reaches_a_function_that_asks_for_them(make_loop, tokenizer) -> None:
    row = Row(["first", "second one", "answer"], prompts=["a", "bb", "ccc"], source="all")
    outputs = agent_outputs(row, tokenizer)
    await agent_worker(make_loop(extra_keys=["text"]))._compute_score(outputs, fields_of(row))
    assert outputs[-1].reward_score == 3.0
    assert outputs[-1].extra_fields["reward_extra_info"]["text"] == "first|second one|answer"


async def test_a_reward_model_of_the_pool_scores_with_verls_own_switched_off(
    make_loop, tokenizer, pool
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    prompt = [{"role": "user", "content": "ask"}]
    rows = [Row(["answer"], source="model"), Row(["a longer answer"], source="model")]
    data = batch(rows, tokenizer, raw_prompt=[prompt, prompt])
    outputs = await make_loop().compute_score_batch(data)

    model = AutoModelForSequenceClassification.from_pretrained(pool.model).eval()
    words = AutoTokenizer.from_pretrained(pool.model)
    for row, output in zip(rows, outputs, strict=True):
        chat = [*prompt, {"role": "assistant", "content": row.texts[-1]}]
        text = words.apply_chat_template(chat, tokenize=False)
        with torch.no_grad():
            direct = model(**words(text, return_tensors="pt")).logits[0, -1].item()
        assert output["reward_score"] == pytest.approx(direct, abs=1e-4)
        assert output["reward_extra_info"]["failed"] is False


async def test_score_outputs_rewards_all_outputs_of_an_agent_loop(pool, tokenizer) -> None:
    row = Row(["x", "a much longer second output", "answer"], prompts=["ask", "again", "a"])
    outputs, fields = agent_outputs(row, tokenizer), fields_of(row)
    outputs[-1].extra_fields["teacher_logprobs"] = teacher = [[0.5]]
    await score_outputs(outputs, fields, redis_url=pool.url)
    assert [output.reward_score for output in outputs] == [1.0, 1.0, 1.0]
    infos = [output.extra_fields["reward_extra_info"] for output in outputs]
    assert infos[0] == infos[1] == infos[2]
    assert infos[0] is not infos[2]
    assert outputs[-1].extra_fields["teacher_logprobs"] is teacher
    assert outputs[-1].metrics.compute_score > 0
    assert outputs[0].as_dict()["rm_scores"][-1] == 1.0


async def test_a_custom_reward_function_by_path_scores_through_the_pool(
    pool, tokenizer_folder, tokenizer
) -> None:
    """verl's own naive manager, with `pkg://queue_client.verl` as its reward function."""
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    config = OmegaConf.create(verl_config(tokenizer_folder, {}))
    config.reward.reward_manager = {"source": "register", "name": "naive", "module": None}
    config.reward.custom_reward_function = {
        "path": "pkg://queue_client.verl",
        "name": "compute_score",
        "reward_kwargs": {"redis_url": pool.url, "on_failure": "zero", "extra_keys": ["text"]},
    }
    reward_loop = RewardLoopWorker(config)
    data = batch([Row(["answer"]), Row(["answer"], mode="raise")], tokenizer)
    good, bad = await reward_loop.compute_score_batch(data)
    assert good["reward_score"] == 1.0
    assert good["reward_extra_info"]["text"] == "answer"
    assert bad["reward_score"] == 0.0
    assert bad["reward_extra_info"]["failed"] is True
    assert list(good["reward_extra_info"]) == list(bad["reward_extra_info"])


async def test_the_manager_loads_from_its_file_as_well(pool, tokenizer_folder, tokenizer) -> None:
    from pathlib import Path

    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    import queue_client.verl

    for _ in range(2):  # verl executes the file anew each time
        config = OmegaConf.create(verl_config(tokenizer_folder, {"redis_url": pool.url}))
        config.reward.reward_manager.module.path = str(Path(queue_client.verl.__file__))
        reward_loop = RewardLoopWorker(config)
    data = batch([Row(["answer"])], tokenizer)
    assert (await reward_loop.compute_score(data))["reward_score"] == 1.0


def test_verls_driver_resolves_the_class(tokenizer_folder) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    config = OmegaConf.create(verl_config(tokenizer_folder, {}))
    assert resolve_reward_manager_cls(config) is QueueRewardManager


def test_verls_own_configuration_takes_the_block(pool) -> None:
    """Composed by hydra from verl's shipped files with the documented override."""
    from pathlib import Path

    import verl
    from hydra import compose, initialize_config_dir
    from verl.trainer.ppo.reward import load_reward_manager

    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                "reward.reward_manager.source=importlib",
                "reward.reward_manager.name=QueueRewardManager",
                "reward.reward_manager.module.path=pkg://queue_client.verl",
                f"+reward.reward_kwargs.redis_url={pool.url}",
                "+reward.reward_kwargs.queue=rewards",
                "+reward.reward_kwargs.on_failure=zero",
            ],
        )
    manager = load_reward_manager(
        config, None, reward_router_address=None, reward_model_tokenizer=None
    )
    assert manager.options.on_failure == "zero"
    assert manager.options.redis_url == pool.url
