"""Many programs, many of them bad: nothing is left, nothing grows."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from worker.sandbox.code_reward import compute_score
from worker.sandbox.errors import NoIsolation
from worker.sandbox.local import LocalRunner
from worker.sandbox.program import Program
from worker.sandbox.verdict import judge

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

LOOPS = """
import asyncio, sys
from worker.sandbox.local import LocalRunner
from worker.sandbox.program import Program

async def main():
    runner = LocalRunner(max_running=4)
    code = "import os\\nopen('/tmp/%s', 'w')\\nif os.fork() == 0: os.setsid()\\nwhile True: pass"
    print("up", flush=True)
    await asyncio.gather(*(runner.run(Program(code, run_timeout_s=100)) for _ in range(4)))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def runner() -> LocalRunner:
    try:
        return LocalRunner(max_running=4)
    except NoIsolation as error:
        pytest.skip(str(error))


async def test_five_hundred_rewards_leave_nothing_behind(
    runner: LocalRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = psutil.Process()
    tests = {"assert_case": ["assert f(2) == 4"]}
    good, slow = "def f(x): return 2 * x", "def f(x):\n    while True: pass"

    async def one(number: int) -> float:
        code = slow if number % 10 == 0 else good
        found = await compute_score("taco", f"```python\n{code}\n```", tests, timeout=1.0)
        return float(found["score"])

    async def batch(numbers: range) -> list[float]:
        return await asyncio.gather(*map(one, numbers))

    await batch(range(40))
    fds, rss = process.num_fds(), process.memory_info().rss
    rewards = await batch(range(500))
    assert rewards == [0.0 if number % 10 == 0 else 1.0 for number in range(500)]
    assert not [child for child in process.children(recursive=True) if child.status() == "zombie"]
    assert process.num_fds() <= fds + 4
    assert process.memory_info().rss < rss * 1.1 + (8 << 20)
    assert not os.listdir(tmp_path)


async def test_bad_programs_do_not_disturb_good_ones(runner: LocalRunner) -> None:
    bad = [
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "x = []\nwhile True: x.append(b'1' * (1 << 20))",
        "while True: print('x' * 65536)",
        "import os\nn = 0\nwhile True:\n    open(str(n), 'wb').write(b'1' * (8 << 20)); n += 1",
        "import os\nos.kill(-1, 9)",
    ]
    programs = [Program(code, run_timeout_s=5.0) for code in bad * 4]
    good = [Program(f"print({n})", run_timeout_s=60.0) for n in range(60)]
    mixed = [each for pair in zip(good, programs * 3, strict=True) for each in pair]
    reports = await asyncio.gather(*map(runner.run, mixed))
    assert [judge(report, n).status for n, report in enumerate(reports[::2])] == ["success"] * 60
    assert not any(judge(report).passed for report in reports[1::2])


def test_a_killed_worker_takes_its_programs_along(runner: LocalRunner) -> None:
    marker = f"marker-{os.getpid()}"
    code = LOOPS % marker
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    worker.stdout.readline()
    time.sleep(2)
    below = psutil.Process(worker.pid).children(recursive=True)
    assert len(below) >= 8
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    _, alive = psutil.wait_procs(below, timeout=20)
    assert not [each for each in alive if each.status() != "zombie"]
