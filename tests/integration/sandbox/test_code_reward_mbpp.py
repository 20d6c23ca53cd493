"""Real tasks: a solution passes, what only ends well does not, on this machine and on a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

IDLE = {
    "empty": "",
    "pass": "pass",
    "sys.exit first": "import sys\nsys.exit(0)\n",
    "os._exit first": "import os\nos._exit(0)\n",
}


@pytest.fixture
def tasks(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / "mbpp_tasks.jsonl").read_text().splitlines()]


async def test_stored_solutions_pass_all_their_tests(score: Any, tasks: list[Any]) -> None:
    assert len(tasks) == 10
    for task in tasks:
        found = await score(task["solution"], {"test_list": task["test_list"]})
        assert (found["score"], found["passed"]) == (1.0, len(task["test_list"])), task["id"]


async def test_programs_that_do_nothing_pass_none(score: Any, tasks: list[Any]) -> None:
    for task in tasks:
        for name, code in IDLE.items():
            program = code if name in {"empty", "pass"} else code + task["solution"]
            found = await score(program, {"test_list": task["test_list"]})
            assert (found["score"], found["passed"]) == (0.0, 0), (task["id"], name)
            assert found["total"] == len(task["test_list"])
