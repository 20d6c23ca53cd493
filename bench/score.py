"""`rewardpool score` on long files: rows a second and peak memory, which must not grow with lines.

python bench/score.py [--rows 10000 100000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS = (10_000, 100_000)
TEXT = "some words of a response " * 25


def main() -> None:
    """Score files of several lengths in processes of their own, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [measure(Path(folder), rows) for rows in arguments.rows]
    if arguments.json:
        print(json.dumps(runs, indent=2))
        return
    print(f"{'rows':>8} {'seconds':>8} {'rows/s':>8} {'peak MiB':>9} {'to the first':>12}")
    for run in runs:
        ratio = run["peak_mib"] / runs[0]["peak_mib"]
        print(
            f"{run['rows']:>8,} {run['seconds']:>8.1f} {run['rows_per_s']:>8,.0f} "
            f"{run['peak_mib']:>9.1f} {ratio:>12.2f}"
        )


def measure(folder: Path, rows: int) -> dict[str, Any]:
    """Return rows a second and the peak memory of the command itself, MiB."""
    source, result = folder / f"{rows}.jsonl", folder / f"{rows}.out"
    with source.open("w") as rollouts:
        for number in range(rows):
            row = {
                "id": number,
                "response": f"{TEXT}\n#### {number % 7}",
                "ground_truth": str(number % 5),
                "data_source": "openai/gsm8k",
            }
            rollouts.write(json.dumps(row) + "\n")
    command = [sys.executable, "-m", "worker.ops.cli", "score", str(source), "--out", str(result)]
    began = time.monotonic()
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        summary = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    with result.open("rb") as file:
        lines = sum(1 for _ in file)
    assert process.returncode == 0, process.returncode
    assert lines == summary["rows"] == rows
    return {
        "rows": rows,
        "seconds": seconds,
        "rows_per_s": rows / summary["elapsed_s"],
        "peak_mib": usage.ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
