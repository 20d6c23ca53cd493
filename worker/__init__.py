"""Workers that score. `PoolWorker` and `PoolJob` are handed on lazily for `rq worker -w … -j …`."""

from __future__ import annotations

from typing import Any

DISTRIBUTION = "rewardpool"

__all__ = ["PoolJob", "PoolWorker"]


def __getattr__(name: str) -> Any:
    if name == "PoolWorker":
        from worker.pool.worker import PoolWorker

        return PoolWorker
    if name == "PoolJob":
        from worker.pool.job import PoolJob

        return PoolJob
    raise AttributeError(f"module 'worker' has no attribute {name!r}")
