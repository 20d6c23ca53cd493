"""The client is thin: a trainer that imports it pays little."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "transformers", "tokenizers", "worker", "limiter", "pydantic", "httpx", "rich")

SCRIPT = f"""
import sys, time
before = time.process_time()
import queue_client
queue_client.RewardClient("redis://localhost:1/0")
spent = time.process_time() - before
print(spent)
print(*[name for name in {HEAVY!r} if name in sys.modules])
"""


def test_importing_the_client_is_cheap_and_pulls_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120
    )
    spent_s, heavy, *_ = [*done.stdout.splitlines(), ""]
    assert heavy == ""
    assert float(spent_s) < 0.6  # CPU seconds: a loaded machine does not count
