"""QueueRewardManager without verl: anything with `batch` and `non_tensor_batch` will do."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import os
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from client_consumer import Consumer
from verl_batches import objects, padded, rows_of

from queue_client import (
    Kind,
    Outcome,
    Output,
    PoolUnavailable,
    Trajectory,
    TrajectoryBatch,
)
from queue_client.shared import close_shared_clients
from queue_client.verl import (
    NoReward,
    QueueRewardManager,
    VerlOptions,
    compute_score,
    score_outputs,
)
from queue_client.verl.results import KEYS
from queue_client.view import view_of


@pytest.fixture(autouse=True)
def _own_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("REDIS_URL", "REWARDPOOL_REDIS__URL"):
        monkeypatch.delenv(name, raising=False)
    yield
    close_shared_clients()


def judged(row: Trajectory) -> Outcome:
    """What the row's `extra_info` says should become of it."""
    wanted = dict(row.extra_info)
    if "kind" in wanted:
        return Outcome.failed(Kind(wanted["kind"]), "as asked", uid=row.uid, wait_s=0.5)
    return Outcome.scored(wanted.get("reward", 1.0), wanted.get("said"), uid=row.uid)


@pytest.fixture
def consumer(redis_url: str) -> Iterator[Consumer]:
    with Consumer(redis_url, score=judged) as running:
        yield running


def manager(url: str | None, **kwargs: Any) -> QueueRewardManager:
    """A manager on a plain configuration."""
    if url is not None:
        kwargs["redis_url"] = url
    return QueueRewardManager(
        config={"reward": {"reward_kwargs": kwargs}},
        tokenizer=None,
        compute_score=None,
        reward_router_address=None,
        reward_model_tokenizer=None,
    )


def data(lengths=((2, 3),), layout="left", **extra_info: Any) -> Any:
    """A batch of one trajectory."""
    made = padded(rows_of(list(lengths)), layout)
    count = len(lengths)
    made.non_tensor_batch |= {
        "data_source": objects(["mine"] * count),
        "reward_model": objects([{"ground_truth": "x", "style": "rule"}] * count),
        "extra_info": objects([extra_info] * count),
        "uid": objects(["u1"] * count),
    }
    return made


async def test_every_row_has_the_same_plain_keys(redis_url, consumer) -> None:
    found = manager(redis_url, on_failure="zero", extra_keys=["notes", "level"])
    rows = [
        {"said": {"acc": 1.0}},
        {"said": {"score": 0.5, "acc": True, "pred": 42, "notes": {"a": [1]}, "level": 3}},
        {"reward": 0.0, "said": {"score": 0.0, "acc": {"odd": 1}, "failed": "no", "kind": 7}},
        {"kind": "timeout"},
        {"kind": "upstream_error"},
        {"reward": None},
    ]
    infos = []
    for row in rows:
        result = await found.run_single(data(**row))
        assert set(result) == {"reward_score", "reward_extra_info"}
        assert type(result["reward_score"]) is float
        infos.append(result["reward_extra_info"])
    kinds: dict[str, set[type]] = {}
    for info in infos:
        assert list(info) == [*KEYS, "notes", "level"]
        for key, value in info.items():
            assert type(value) in (int, float, bool, str, type(None))
            kinds.setdefault(key, set()).add(type(value))
    for key in KEYS:  # a column is of one type, but for None: numpy averages it
        assert len(kinds[key] - {type(None)}) == 1, key
    assert [info["acc"] for info in infos] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [info["failed"] for info in infos] == [False, False, False, True, True, True]
    assert [info["kind"] for info in infos[3:]] == ["timeout", "upstream_error", "skipped"]
    assert [info["timeout"] for info in infos] == [False, False, False, True, False, False]
    assert json.loads(infos[1]["notes"]) == {"a": [1]}
    assert json.loads(infos[2]["extra"])["kind"] == 7
    assert infos[3]["wait_s"] == 0.5


async def test_a_failed_row_raises_unless_told_otherwise(redis_url, consumer) -> None:
    with pytest.raises(NoReward, match="u1_None: upstream_error: as asked") as caught:
        await manager(redis_url).run_single(data(kind="upstream_error"))
    assert caught.value.outcome.retryable
    assert (await manager(redis_url, on_failure="zero").run_single(data(kind="timeout")))[
        "reward_score"
    ] == 0.0
    nan = await manager(redis_url, on_failure="nan").run_single(data(kind="timeout"))
    assert math.isnan(nan["reward_score"])


async def test_a_batch_that_cannot_be_read_fails_with_its_reason(redis_url, consumer) -> None:
    bad = data()
    bad.batch["attention_mask"][0, 2] = 7
    with pytest.raises(NoReward, match="bad_input: attention_mask holds values"):
        await manager(redis_url).run_single(bad)
    info = (await manager(redis_url, on_failure="zero").run_single(bad))["reward_extra_info"]
    assert info["kind"] == "bad_input"


async def test_a_batch_is_scored_together_and_one_bad_row_fails_alone(redis_url, consumer) -> None:
    one = manager(redis_url, on_failure="zero")
    rows = [Trajectory([Output([1], [2, 3])], extra_info={"reward": float(n)}) for n in range(5)]
    good = view_of(TrajectoryBatch.pad(rows), backend="numpy")
    found = await one.run_batch(good)
    assert [result["reward_score"] for result in found] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(consumer.jobs) == 1
    bad = view_of(TrajectoryBatch.pad(rows), backend="numpy")
    bad.batch["attention_mask"][2, 0] = 0
    bad.batch["attention_mask"][2, 1] = 0  # a hole before the last token
    found = await one.run_batch(bad)
    assert [result["reward_score"] for result in found] == [0.0, 1.0, 0.0, 3.0, 4.0]
    assert found[2]["reward_extra_info"]["kind"] == "bad_input"


@pytest.mark.parametrize("layout", ["left", "right", "joined"])
async def test_all_outputs_travel_with_exact_lengths(redis_url, consumer, layout) -> None:
    seen: list[Trajectory] = []

    def score(row: Trajectory) -> Outcome:
        seen.append(row)
        return Outcome.scored(1.0, uid=row.uid)

    consumer.score = score
    lengths = ((4, 18), (14, 2), (3, 0), (9, 5))
    await manager(redis_url).run_single(data(lengths, layout))
    assert [len(one.response_ids) for one in seen[0].outputs] == [18, 2, 0, 5]
    assert [len(one.prompt_ids) for one in seen[0].outputs] == [4, 14, 3, 9]


async def test_the_callers_dicts_are_left_alone(redis_url, consumer) -> None:
    row = data(nested={"list": [1]})
    row.non_tensor_batch["tool_extra_fields"] = objects([{"turn_scores": [0.5]}])
    before = copy.deepcopy(row.non_tensor_batch)
    await manager(redis_url).run_single(row)
    for name, column in before.items():
        assert row.non_tensor_batch[name].tolist() == column.tolist()


async def test_images_are_dropped_or_refused_as_chosen(redis_url, consumer) -> None:
    row = data(tools_kwargs={"image": object()})
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}]
    row.non_tensor_batch["raw_prompt"] = objects([chat])
    assert (await manager(redis_url).run_single(row))["reward_score"] == 1.0
    with pytest.raises(NoReward, match="images"):
        await manager(redis_url, images="refuse").run_single(row)


def test_many_loops_in_many_threads_use_one_client(redis_url, consumer) -> None:
    managers = [manager(redis_url) for _ in range(4)]
    assert len({id(one.options.client()) for one in managers}) == 1
    found: list[float] = []

    def work(one: QueueRewardManager) -> None:
        async def run() -> None:
            results = await asyncio.gather(*(one.run_single(data()) for _ in range(10)))
            found.extend(result["reward_score"] for result in results)

        asyncio.run(run())

    threads = [threading.Thread(target=work, args=(one,)) for one in managers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [1.0] * 40


def test_a_forked_child_has_a_client_of_its_own(redis_url, consumer) -> None:
    one = manager(redis_url)
    assert asyncio.run(one.run_single(data()))["reward_score"] == 1.0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(asyncio.run(one.run_single(data(reward=3.0)))["reward_score"])
            close_shared_clients()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert asyncio.run(one.run_single(data()))["reward_score"] == 1.0


async def test_the_address_may_stand_in_the_environment(redis_url, consumer, monkeypatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://localhost:1/0")
    monkeypatch.setenv("REWARDPOOL_REDIS__URL", redis_url)
    assert (await manager(None).run_single(data()))["reward_score"] == 1.0
    assert QueueRewardManager().options.redis_url == redis_url


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        (
            {"redis_ur": "x"},
            "reward.reward_kwargs.redis_ur: unknown key, did you mean 'redis_url'",
        ),
        ({"redis_url": None}, "reward.reward_kwargs.redis_url: an address expected"),
        ({"redis_url": "localhost"}, "reward.reward_kwargs.url"),
        ({"on_failure": "ignore"}, "on_failure: raise | zero | nan expected"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"queue": ""}, "queue"),
        ({"extra_keys": "acc"}, "extra_keys: a list of names expected"),
        ({"images": "keep"}, "images"),
        ({"rows_per_job": 0}, "rows_per_job"),
        ({"max_resp_len": 10}, "max_resp_len: rewards are computed by the workers"),
    ],
)
def test_a_wrong_option_is_refused_at_the_start(kwargs, says) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        manager(None, **{"redis_url": "redis://localhost:1/0", **kwargs})


def test_verls_own_reward_model_beside_it_is_refused() -> None:
    config = {
        "reward": {
            "reward_model": {"enable": True},
            "reward_kwargs": {"redis_url": "redis://localhost:1/0"},
        }
    }
    with pytest.raises(ValueError, match=r"reward\.reward_model\.enable"):
        QueueRewardManager(config=config)


async def test_redis_that_is_away_is_an_error_whatever_was_chosen() -> None:
    for choice in ("raise", "zero", "nan"):
        with pytest.raises(PoolUnavailable):
            await manager("redis://127.0.0.1:1/0", on_failure=choice).run_single(data())


async def test_the_custom_function_scores_one_text(redis_url, consumer) -> None:
    found = await compute_score(
        data_source="mine",
        solution_str="text",
        ground_truth="x",
        extra_info={"said": {"acc": 0.25}, "reward": 0.5},
        redis_url=redis_url,
        reward_router_address="localhost:1",
        reward_model_tokenizer=object(),
    )
    assert found["score"] == 0.5
    assert found["acc"] == 0.25
    assert set(found) == set(KEYS)


def output(prompt, response, **more: Any) -> Any:
    """Something like an AgentLoopOutput."""
    fields = {"reward_score": None, "extra_fields": {}, "num_turns": 2, "response_mask": None}
    return SimpleNamespace(prompt_ids=prompt, response_ids=response, **(fields | more))


KWARGS = {"data_source": "mine", "reward_model": {"ground_truth": "x"}, "uid": "u", "session_id": 0}


async def test_all_outputs_get_the_reward_of_the_trajectory(redis_url, consumer) -> None:
    seen: list[Trajectory] = []

    def score(row: Trajectory) -> Outcome:
        seen.append(row)
        return Outcome.scored(0.75, {"acc": 0.75}, uid=row.uid)

    consumer.score = score
    teacher = [[0.1]]
    outputs = [
        output([1], [2, 3]),
        output([1, 2, 3], [4], response_mask=[1]),
        output([1], [5, 6], extra_fields={"teacher_logprobs": teacher, "turn_scores": [1.0]}),
    ]
    kwargs = copy.deepcopy(KWARGS)
    await score_outputs(outputs, kwargs, redis_url=redis_url)
    assert kwargs == KWARGS
    assert [one.reward_score for one in outputs] == [0.75] * 3
    infos = [one.extra_fields["reward_extra_info"] for one in outputs]
    assert infos[0] == infos[1] == infos[2]
    assert len({id(info) for info in infos}) == 3
    assert outputs[2].extra_fields["teacher_logprobs"] is teacher
    assert "teacher_logprobs" not in outputs[0].extra_fields
    assert [list(one.response_ids) for one in seen[0].outputs] == [[2, 3], [4], [5, 6]]
    assert seen[0].turn_scores == [1.0]
    assert "tool_extra_fields" not in seen[0].extra_fields


async def test_what_is_scored_already_is_not_sent(redis_url, consumer) -> None:
    outputs = [output([1], [2]), output([1], [3], reward_score=0.5)]
    await score_outputs(outputs, KWARGS, redis_url=redis_url)
    assert [one.reward_score for one in outputs] == [0.5, 0.5]
    assert outputs[0].extra_fields["reward_extra_info"]["acc"] == 0.5
    info = {"acc": 0.25, "mine": 1}
    outputs = [output([1], [2]), output([1], [3], reward_score=0.5)]
    outputs[1].extra_fields["reward_extra_info"] = info
    await score_outputs(outputs, KWARGS, redis_url=redis_url)
    assert outputs[0].extra_fields["reward_extra_info"] == info
    assert consumer.scored == []


async def test_a_trajectory_without_outputs_is_a_warning(caplog) -> None:
    await score_outputs([], KWARGS)
    assert "trajectory without outputs received uid=u session_id=0" in caplog.text


async def test_failed_outputs_are_left_unscored(redis_url, consumer) -> None:
    outputs = [output([1], [2])]
    kwargs = {**KWARGS, "extra_info": {"kind": "timeout"}}
    with pytest.raises(NoReward):
        await score_outputs(outputs, kwargs, redis_url=redis_url)
    assert outputs[0].reward_score is None


async def test_a_manager_scores_outputs_with_its_own_options(redis_url, consumer) -> None:
    outputs = [output([1], [2])]
    kwargs = {**KWARGS, "extra_info": {"kind": "timeout"}}
    await manager(redis_url, on_failure="zero").score_outputs(outputs, kwargs)
    assert outputs[0].reward_score == 0.0
    assert outputs[0].extra_fields["reward_extra_info"]["timeout"] is True


def test_options_hide_the_address() -> None:
    assert "secret" not in repr(VerlOptions(redis_url="redis://:secret@localhost:1/0"))


def test_rewards_stand_on_the_last_response_token() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    lengths = [(2, 3), (4, 0), (1, 5)]
    for layout in ("left", "right", "joined"):
        made = data(lengths, layout)
        made.batch = {name: torch.from_numpy(array) for name, array in made.batch.items()}
        placed = QueueRewardManager.assemble_rm_scores(made, [1.0, 2.0, float("nan")])
        assert placed.shape == made.batch["responses"].shape
        assert placed[0, 2] == 1.0
        assert placed[1].abs().sum() == 0
        assert torch.isnan(placed[2, 4])
    with pytest.raises(ValueError, match="scores: 3 expected"):
        QueueRewardManager.assemble_rm_scores(made, [1.0])
