"""Programs a second on this machine, bare and behind the wall, and rewards of three checks.

    python bench/sandbox.py [--rows 60] [--json]

Every figure is of this machine and this run; ratios compare within it. `bare` starts the same
interpreter as a plain subprocess; `three bare` starts it once a check, as one program a check does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from worker.sandbox.code_reward import compute_score
from worker.sandbox.local import LocalRunner
from worker.sandbox.program import Program

TESTS = {"assert_case": [f"assert f({n}) == {2 * n}" for n in range(3)]}
RESPONSE = "```python\ndef f(x):\n    return 2 * x\n```"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.rows))
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<48} {value:>10.2f}")


async def measure(rows: int) -> dict[str, float]:
    """Return programs and rewards a second."""
    runner = LocalRunner()
    python = runner.wall.python

    async def bare() -> None:
        process = await asyncio.create_subprocess_exec(python, "-I", "-c", "print(1)", stdout=-3)
        await process.wait()

    async def three_bare() -> None:
        for _ in range(3):
            await bare()

    async def walled() -> None:
        await runner.run(Program("print(1)"))

    async def reward() -> None:
        found = await compute_score("taco", RESPONSE, TESTS)
        assert found["score"] == 1.0

    figures = {
        "programs a second, bare": await rate(bare, rows),
        f"programs a second, {runner.wall.name}": await rate(walled, rows),
        "rewards of three checks a second, three bare": await rate(three_bare, rows),
        "rewards of three checks a second": await rate(reward, rows),
    }
    plain, behind, three, ours = figures.values()
    figures["behind the wall / bare"] = behind / plain
    figures["rewards / three bare"] = ours / three
    return figures


async def rate(work: Callable[[], Awaitable[None]], rows: int) -> float:
    """Return how many a second, one after the other."""
    await work()
    began = time.perf_counter()
    for _ in range(rows):
        await work()
    return rows / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
