"""The rate-limited manager with limits of this process, and with the cluster's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from limited_rows import Letters, reset

from queue_client.compat import RateLimitedRewardManager
from worker.ops.embedded import EmbeddedServer

Make = Callable[..., RateLimitedRewardManager]


@pytest.fixture(params=["process", "cluster"])
async def make(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, server: EmbeddedServer
) -> AsyncIterator[Make]:
    """`make(function, max_rpm=...)` returns a manager under these limits."""
    for name in ("REDIS_URL", "REWARDPOOL_REDIS__URL"):
        monkeypatch.delenv(name, raising=False)
    url = request.getfixturevalue("redis_url") if request.param == "cluster" else None
    admissions = []

    def made(function: Any, **limits: Any) -> RateLimitedRewardManager:
        if url is not None:
            limits["redis_url"] = url
        config = {"reward": limits}
        RateLimitedRewardManager.init_class(config, Letters())
        admissions.append(RateLimitedRewardManager._admission)
        return RateLimitedRewardManager(config=config, tokenizer=Letters(), compute_score=function)

    reset()
    yield made
    for admission in admissions:
        await admission.close()
    reset()
    await asyncio.sleep(0)
