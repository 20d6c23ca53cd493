"""Scoring inside real worker processes, from a producer's hands and back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from scoring_support import FUNCTIONS

from queue_client import Kind, Output, RewardClient, RewardUnavailable, Trajectory

START_S = 60.0


class Pool:
    """Worker processes with settings of the test's own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, settings: str, *, workers: int = 1) -> None:
        """Start workers; `settings` is TOML."""
        config = self.folder / "rewardpool.toml"
        config.write_text(f'[redis]\nurl = "{self.url}"\n{settings}')
        env = dict(os.environ, REWARDPOOL_CONFIG=str(config))
        command = [sys.executable, "-m", "rq.cli", "worker", "-u", self.url]
        command += ["-w", "worker.PoolWorker", "-j", "worker.PoolJob"]
        command += ["-S", "queue_client.wire.Serializer", "rewards"]
        for _ in range(workers):
            with (self.folder / f"worker{len(self.workers)}.log").open("wb") as log:
                self.workers.append(
                    subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
                )

    def log(self) -> str:
        """What the first worker wrote."""
        return (self.folder / "worker0.log").read_text(errors="replace")[-4000:]

    def stop(self) -> list[psutil.Process]:
        """End the workers as an operator does; returns what they left running."""
        below = [
            child
            for worker in self.workers
            if worker.poll() is None
            for child in psutil.Process(worker.pid).children(recursive=True)
        ]
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.workers.clear()
        return psutil.wait_procs(below, timeout=10)[1]


@pytest.fixture
def pool(redis_url, tmp_path):
    started = Pool(redis_url, tmp_path)
    yield started
    started.stop()


@pytest.fixture
def client(redis_url):
    with RewardClient(redis_url, queue="rewards") as made:
        yield made


def rows(texts, **fields):
    return [
        Trajectory(outputs=[Output(text=text)], uid=f"u{at}", **fields)
        for at, text in enumerate(texts)
    ]


BAD = {"hang": Kind.TIMEOUT, "exit": Kind.SCORER_ERROR, "_exit": Kind.SCORER_ERROR,
       "segfault": Kind.SCORER_ERROR, "memory 2048": Kind.SCORER_ERROR}  # fmt: skip


def test_bad_rows_fail_alone_in_real_workers_and_nothing_stays_behind(pool, client):
    pool.start(
        f'[reward]\nfunction = "{FUNCTIONS}:misbehave"\ntimeout_s = 2\n'
        "[worker]\nmemory_mb = 1024\n",
        workers=2,
    )
    texts = ["good"] * 256
    for at, bad in zip(range(7, 256, 41), [*BAD, "flood"], strict=False):
        texts[at] = bad

    outcomes = client.score(rows(texts), timeout_s=START_S * 2)
    again = client.score(rows(["good"] * 32), timeout_s=START_S)

    failed = {text: o.kind for text, o in zip(texts, outcomes, strict=True) if not o.ok}
    assert failed == BAD, pool.log()
    assert [outcome.uid for outcome in outcomes] == [f"u{at}" for at in range(256)]
    assert all(outcome.ok for outcome in again)
    assert max(outcome.run_s for outcome in again) < 5
    assert pool.stop() == []


def test_the_producer_goes_on_while_its_rows_are_scored(pool, client):
    pool.start(f'[reward]\nfunction = "{FUNCTIONS}:misbehave_async"\n[worker]\nconcurrency = 16\n')
    client.score(rows(["warm"]), timeout_s=START_S)
    began = time.monotonic()

    futures = client.submit(rows(["sleep 0.5"] * 64))
    submitted_s = time.monotonic() - began
    outcomes = [future.result(timeout=START_S) for future in futures]
    took_s = time.monotonic() - began

    assert submitted_s < took_s / 2
    assert took_s >= 64 / 16 * 0.5, "sixteen at a time"
    assert all(outcome.reward == 0.5 for outcome in outcomes)


def test_the_producer_chooses_what_failed_rows_become(pool, client):
    pool.start(f'[reward]\nfunction = "{FUNCTIONS}:misbehave_async"\n')
    group = ["exactly", "raise", "exactly", "raise", "other", "other", "raise", "exactly"]

    outcomes = client.score(rows(group), timeout_s=START_S)

    rewards, mask = client.rewards(outcomes, on_failure="mask")
    assert list(mask) == [text != "raise" for text in group]
    good = [float(r) for r, m in zip(rewards, mask, strict=True) if m]
    assert sum(good) / len(good) == (1 + 1 + 0.5 + 0.5 + 1) / 5
    with pytest.raises(RewardUnavailable) as caught:
        client.rewards(outcomes, on_failure="raise")
    assert caught.value.rows == [1, 3, 6]


def test_ids_of_several_outputs_are_decoded_and_scored_by_the_last(pool, client, real_tokenizer):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(real_tokenizer)

    def output(text, prompt=3):
        ids = tokenizer.encode(text, add_special_tokens=False)
        return Output(prompt_ids=[7] * prompt, response_ids=ids, response_mask=[1] * len(ids))

    pool.start(f'[reward]\ntokenizer = "{real_tokenizer}"\n')
    trajectories = [
        Trajectory(outputs=[output("so #### 42")]),
        Trajectory(outputs=[output("#### 42"), output("or " * 40), output("no, #### 41", 60)]),
        Trajectory(outputs=[output("first", 40), output("now #### 42")]),
        Trajectory(outputs=[output("#### 42"), Output(prompt_ids=[7], response_ids=[])]),
    ]
    for trajectory in trajectories:
        trajectory.data_source, trajectory.ground_truth = "openai/gsm8k", "42"

    outcomes = client.score(trajectories, timeout_s=START_S)

    assert [outcome.reward for outcome in outcomes] == [1.0, 0.0, 1.0, 0.0], outcomes


def test_a_real_tokenizer_and_a_real_model_score_a_batch_in_a_worker(
    pool, client, tiny_model, real_tokenizer
):
    from transformers import AutoTokenizer

    encode = AutoTokenizer.from_pretrained(real_tokenizer).encode
    pool.start(
        f'[reward]\nmanager = "reward_model"\ntokenizer = "{real_tokenizer}"\n'
        f'[reward.reward_model]\npath = "{tiny_model}"\n'
    )
    texts = ["the answer is 42", "one plus one is two", "yes", "no, it is 41"]

    def trajectories():
        return [
            Trajectory(
                outputs=[Output(response_ids=encode(text, add_special_tokens=False))],
                messages=[{"role": "user", "content": "6 x 7?"}],
            )
            for text in texts
        ]

    batch = client.score(trajectories() * 4, timeout_s=START_S)
    single = [client.score([one], timeout_s=START_S)[0] for one in trajectories()]
    again = [client.score([one], timeout_s=START_S)[0] for one in trajectories()]

    assert all(outcome.ok for outcome in batch), (batch[0], pool.log())
    for at, outcome in enumerate(batch):
        assert abs(outcome.reward - single[at % len(texts)].reward) < 1e-5
    assert [outcome.reward for outcome in again] == [outcome.reward for outcome in single]
    assert len({outcome.reward for outcome in single}) == len(texts)
