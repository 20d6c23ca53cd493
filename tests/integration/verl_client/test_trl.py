"""TRL's call shape through the queue: the numbers of the direct call, floats or None."""

from __future__ import annotations

import inspect
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from client_consumer import Consumer, until

from queue_client import Kind, Outcome, RewardUnavailable, Trajectory
from queue_client.shared import close_shared_clients
from queue_client.trl import queue_reward

FUNCTION = """
def accuracy(completions, solution, **columns):
    texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
    return [float(text == truth) for text, truth in zip(texts, solution)]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return accuracy([solution_str], [ground_truth])[0]
"""


@pytest.fixture(autouse=True)
def _own_clients() -> Iterator[None]:
    yield
    close_shared_clients()


@pytest.fixture
def consumer(redis_url: str) -> Iterator[Consumer]:
    with Consumer(redis_url, score=lambda row: Outcome.scored(1.0, uid=row.uid)) as running:
        yield running


def direct():
    """The function itself."""
    scope: dict = {}
    exec(FUNCTION, scope)
    return scope["accuracy"]


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[None]:
    """A real `rq worker` with the same function."""
    (tmp_path / "accuracy.py").write_text(FUNCTION)
    env = {
        **os.environ,
        "REWARDPOOL_REDIS__URL": redis_url,
        "REWARDPOOL_REWARD__FUNCTION": f"{tmp_path}/accuracy.py:compute_score",
    }
    command = [sys.executable, "-m", "rq.cli", "worker", "-u", redis_url, "-w", "worker.PoolWorker"]
    command += ["-j", "worker.PoolJob", "-S", "queue_client.wire.Serializer", "rewards"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log)
    try:
        with redis.Redis.from_url(redis_url) as connection:
            until(lambda: connection.scard("rq:workers"), timeout_s=90)
        yield
    finally:
        process.terminate()
        process.wait(30)


async def test_the_pool_gives_the_numbers_of_the_direct_call(redis_url, worker) -> None:
    texts = ["42", "41", "42", ""]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    question = [{"role": "user", "content": "ask"}]
    solution = ["42", "42", "7", "1"]
    reward = queue_reward(redis_url, timeout_s=60)
    for prompts, completions in ((["ask"] * 4, texts), ([question] * 4, chats)):
        columns = {"completions": completions, "solution": solution}
        through = await reward(prompts=prompts, completion_ids=[[1], [2], [3], []], **columns)
        assert through == direct()(**columns)
        assert all(type(one) is float for one in through)


def test_it_is_an_async_function_with_a_name_that_can_be_pickled() -> None:
    reward = queue_reward("redis://localhost:1/0", name="judge")
    again = pickle.loads(pickle.dumps(reward))
    for one in (reward, again):
        assert inspect.iscoroutinefunction(one)
        assert one.__name__ == "judge"
    assert again.args == reward.args


async def test_columns_arrive_where_a_reward_function_looks_for_them(redis_url, consumer) -> None:
    seen: list[Trajectory] = []

    def score(row: Trajectory) -> Outcome:
        seen.append(row)
        return Outcome.scored(1.0, uid=row.uid)

    consumer.score = score
    reward = queue_reward(redis_url, data_source="sums", ground_truth="target")
    await reward(
        prompts=[[{"role": "user", "content": "1+1"}]],
        completions=[[{"role": "assistant", "content": "2"}]],
        completion_ids=[[17]],
        target=["two"],
        answer=["not this"],
        level=[3],
        image=[object()],
        trainer_state=object(),
    )
    row = seen[0]
    assert (row.data_source, row.ground_truth) == ("sums", "two")
    assert row.extra_info == {"target": "two", "answer": "not this", "level": 3}
    assert row.messages == [{"role": "user", "content": "1+1"}]
    assert row.outputs[-1].text == "2"
    assert list(row.outputs[-1].response_ids) == [17]


async def test_each_assistant_turn_is_an_output(redis_url, consumer) -> None:
    seen: list[Trajectory] = []

    def score(row: Trajectory) -> Outcome:
        seen.append(row)
        return Outcome.scored(1.0, uid=row.uid)

    consumer.score = score
    turns = [
        {"role": "assistant", "content": "let me look"},
        {"role": "tool", "content": "found"},
        {"role": "assistant", "content": "42"},
    ]
    await queue_reward(redis_url)(prompts=["x"], completions=[turns], completion_ids=[[1, 2, 3]])
    assert [one.text for one in seen[0].outputs] == ["let me look", "42"]


async def test_failed_and_skipped_rows_are_none(redis_url, consumer, caplog) -> None:
    def score(row: Trajectory) -> Outcome:
        if row.ground_truth == "fail":
            return Outcome.failed(Kind.UPSTREAM_ERROR, "the judge is down", uid=row.uid)
        return Outcome.scored(None if row.ground_truth == "skip" else 0.5, uid=row.uid)

    consumer.score = score
    columns = {"prompts": ["x"] * 3, "completions": ["y"] * 3, "answer": ["fail", "skip", "good"]}
    logged: dict[str, float] = {}
    found = await queue_reward(redis_url)(**columns, log_metric=logged.__setitem__)
    assert found == [None, None, 0.5]
    assert math.isclose(logged["rewardpool/failed_frac"], 1 / 3)
    assert "the judge is down" in caplog.text
    with pytest.raises(RewardUnavailable, match="upstream_error"):
        await queue_reward(redis_url, on_failure="raise")(**columns)


def test_a_bad_option_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="on_failure"):
        queue_reward("redis://localhost:1/0", on_failure="zero")
    with pytest.raises(ValueError, match="url"):
        queue_reward("localhost:1")
