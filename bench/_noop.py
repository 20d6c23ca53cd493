"""Functions that do nothing, for the benchmarks: a reward, a slow one, an RQ job."""

from __future__ import annotations

import asyncio


async def score(solution_str: str, ground_truth: object) -> float:
    """Score a row without looking at it."""
    return 1.0


async def score_slowly(solution_str: str, ground_truth: object) -> float:
    """Wait for two seconds, as a judge would make us."""
    await asyncio.sleep(2.0)
    return 1.0


def job() -> None:
    """Do nothing, for RQ's own workers."""
