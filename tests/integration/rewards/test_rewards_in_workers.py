"""Built-in rewards from a producer's hands through real worker processes and back."""

from __future__ import annotations

import psutil
import pytest
from judge_stub import JudgeStub, refusal, verdict

from queue_client import Kind, Output, RewardClient, Trajectory
from worker.ops.local_pool import LocalPool

DEADLINE_S = 120.0
ENDLESS = [
    "\\boxed{9^{9^{9^{9}}}}",
    "\\boxed{(10^8)!}",
    "\\boxed{\\binom{10^7}{5\\cdot 10^6}}",
    "\\boxed{\\prod_{k=1}^{10^6} k}",
]


def row(response: str, truth: str = "7", source: str | None = None) -> Trajectory:
    """One trajectory."""
    return Trajectory([Output(text=response)], data_source=source, ground_truth=truth)


def helpers() -> list[psutil.Process]:
    """Helper processes below this one."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "nursery" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


def test_maths_without_end_fails_alone_and_leaves_the_workers_free(redis_url: str) -> None:
    settings = {"reward": {"timeout_s": 5}, "worker": {"processes": 4}}
    easy = [row(f"\\boxed{{{n}}}") for n in range(28)]
    with (
        LocalPool(workers=2, settings=settings, redis_url=redis_url) as pool,
        RewardClient(pool.url, queue=pool.queue) as client,
    ):
        outcomes = client.score(easy + [row(each) for each in ENDLESS], timeout_s=DEADLINE_S)
        again = client.score(easy, timeout_s=DEADLINE_S)
        assert helpers()
    _, left = psutil.wait_procs(helpers(), timeout=10)

    assert [each.reward for each in outcomes[:28]] == [float(n == 7) for n in range(28)]
    assert [each.kind for each in outcomes[28:]] == [Kind.TIMEOUT] * 4
    assert [each.reward for each in again] == [float(n == 7) for n in range(28)]
    assert left == []


@pytest.mark.parametrize("status", [503, 429])
def test_rows_of_a_judge_that_is_down_fail_and_are_scored_once_it_is_back(
    judge: JudgeStub, redis_url: str, status: int
) -> None:
    kwargs = {"base_url": judge.url, "model": "m", "limit": "judge"}
    essay = {"function": "builtin:judge", "kwargs": kwargs, "backoff_s": 0.01,
             "retries": {"upstream_error": 1, "upstream_rate_limited": 1}}  # fmt: skip
    settings = {"limits": {"judge": {}}, "reward": {"sources": {"essay": essay}}}
    rows = [row(f"wrong {n}", source="essay") for n in range(10)]
    judge.answers(refusal(status, retry_after="0"))
    with (
        LocalPool(workers=1, settings=settings, redis_url=redis_url) as pool,
        RewardClient(pool.url, queue=pool.queue) as client,
    ):
        down = client.score([*rows, row("#### 7", source="openai/gsm8k")], timeout_s=DEADLINE_S)
        judge.answers(verdict(0.0))
        back = client.score(rows, timeout_s=DEADLINE_S)

    kind = Kind.UPSTREAM_ERROR if status == 503 else Kind.UPSTREAM_RATE_LIMITED
    assert [(each.kind, each.reward) for each in down[:-1]] == [(kind, None)] * 10
    assert all(each.retryable for each in down[:-1])
    assert down[-1].reward == 1.0
    assert [each.reward for each in back] == [0.0] * 10
