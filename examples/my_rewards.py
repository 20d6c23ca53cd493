"""A reward function of your own: a rule first, a judge under a limit for what is left.

    [limits.judge]
    max_concurrent = 8
    rpm = 600
    tpm = 90_000

    [reward]
    function = "examples/my_rewards.py:compute_score"

Try it before a large run: `rewardpool check examples/my_rewards.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import httpx

from worker.rewards import BadInput, RateLimited, Unparseable, UpstreamError

JUDGE_URL = os.environ.get("JUDGE_URL", "")  # an OpenAI-compatible endpoint
JUDGE_MODEL = os.environ.get("JUDGE_MODEL", "judge")
MAX_REPLY_TOKENS = 16
QUESTION = (
    "Is the answer right? Reply with one number between 0 and 1.\n"
    "Reference: {reference}\nAnswer: {answer}"
)


async def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    limits: Mapping[str, Any],
) -> dict[str, Any]:
    """Return 1.0 for a literal match, else what the judge says; 0.0 where there is no judge.

    What is returned beside `score` is reported with the reward. What is raised says why a row has
    no reward at all; a wrong answer is a score.
    """
    if ground_truth is None:
        raise BadInput("ground_truth: there is none to compare with")
    reference = str(ground_truth).strip()
    if reference and reference in _numbers(solution_str):
        return {"score": 1.0, "by": "rule"}
    if not JUDGE_URL or not solution_str.strip():
        return {"score": 0.0, "by": "rule"}
    prompt = QUESTION.format(reference=reference, answer=solution_str[-4000:])
    # Waiting for the lease is no running time, and one 429 slows every worker once.
    async with limits["judge"].lease(tokens=len(prompt) // 4 + MAX_REPLY_TOKENS) as lease:
        reply = await _ask(prompt)
        await lease.settle(tokens=reply["usage"]["total_tokens"])
    return {"score": _verdict(reply["choices"][0]["message"]["content"]), "by": "judge"}


def _numbers(text: str) -> list[str]:
    return re.findall(r"-?\d+(?:\.\d+)?", text[-300:].replace(",", ""))


async def _ask(prompt: str) -> Any:
    """One request; the worker tries again by itself where the error says it may help."""
    body = {
        "model": JUDGE_MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": MAX_REPLY_TOKENS,
        "temperature": 0,
    }
    try:
        async with httpx.AsyncClient(timeout=60) as client:
            reply = await client.post(f"{JUDGE_URL}/v1/chat/completions", json=body)
    except httpx.HTTPError as error:
        raise UpstreamError(f"judge: {type(error).__name__}") from error
    if reply.status_code == 429:
        raise RateLimited(float(reply.headers.get("retry-after", 1)))
    if reply.status_code >= 400:
        raise UpstreamError(f"judge: HTTP {reply.status_code}", retryable=reply.status_code >= 500)
    return reply.json()


def _verdict(text: str) -> float:
    found = re.search(r"[01](?:\.\d+)?", text)
    if found is None or float(found.group()) > 1:
        raise Unparseable("judge: no number between 0 and 1 in its reply")
    return float(found.group())
