"""Real tasks: a solution passes, what only ends well does not, on this machine and on a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

IDLE = {
    "empty": "",
    "sys.exit first": "import sys\nsys.exit(0)\n",
    "os._exit first": "import os\nos._exit(0)\n",
}


@pytest.fixture
def tasks(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / "mbpp_tasks.jsonl").read_text().splitlines()]


async def test_stored_solutions_pass_all_their_tests(score: Any, tasks: list[Any]) -> None:
    assert len(tasks) == 10
    found = await gather(
        score(task["solution"], {"test_list": task["test_list"]}) for task in tasks
    )
    for task, each in zip(tasks, found, strict=True):
        assert (each["score"], each["passed"]) == (1.0, len(task["test_list"])), task["id"]


@pytest.mark.parametrize("name", IDLE)
async def test_programs_that_do_nothing_pass_none(score: Any, tasks: list[Any], name: str) -> None:
    programs = [IDLE[name] + (task["solution"] if "first" in name else "") for task in tasks]
    found = await gather(
        score(program, {"test_list": task["test_list"]})
        for program, task in zip(programs, tasks, strict=True)
    )
    for task, each in zip(tasks, found, strict=True):
        assert (each["score"], each["passed"]) == (0.0, 0), task["id"]
        assert each["total"] == len(task["test_list"])


async def gather(work: Any) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*work))
