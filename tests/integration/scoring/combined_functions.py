"""Functions for weighted sums."""

from __future__ import annotations

from queue_client import Output  # noqa: F401 - a user's module may import what it likes


async def correct(solution_str, ground_truth):
    return {"score": float(ground_truth in solution_str), "pred": solution_str[-2:]}


async def form(solution_str):
    return solution_str.startswith("<think>")


async def skips(solution_str):
    return None


async def breaks(solution_str):
    raise ValueError("no verdict")


async def several(solution_str, extra_info):
    return {"score": 0.7, "correct": 1, "format": 0.4,
            "experiment": extra_info.get("experiment_name")}  # fmt: skip
