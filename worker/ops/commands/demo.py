"""`rewardpool demo`: the example rollouts through two workers, a judge with a quota, one limit."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from limiter import Usage, usage_of
from queue_client import RewardClient
from worker.ops.embedded import NoServer
from worker.ops.judge_stub import JudgeStub
from worker.ops.local_pool import LocalPool, PoolFailed
from worker.ops.score_run import Progress, ScoreRun
from worker.ops.summary import Summary, show_summary

WORKERS = 2
JUDGE_RPM = 30
#: Below 60: the judge starts with a full minute, and its clock starts when our first call arrives,
#: so a bucket as large as its own would draw one 429 for that call's latency.
BURST_S = 57
MAX_CONCURRENT = 8
LIMIT = {"max_concurrent": MAX_CONCURRENT, "rpm": JUDGE_RPM, "burst_s": BURST_S}
JUDGED = "example/judged"
#: Rows of the example that cannot be scored say so in their text.
UNSCORABLE = b"unscorable-"
INTERRUPTED = 130


@click.command(name="demo")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--out", type=click.Path(dir_okay=False), help="Write the result lines there.")
def command(file: str | None, out: str | None) -> None:
    """Score the example rollouts with two workers on an embedded server; leaves nothing running.

    Exit code 0 when exactly the rows fail that cannot be scored.
    """
    path = Path(file) if file else _example()
    console = Console()
    try:
        results = run(path, console)
    except (NoServer, PoolFailed) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        console.print("interrupted: everything was stopped")
        sys.exit(INTERRUPTED)
    if out:
        Path(out).write_text(results, encoding="utf-8")
    surprises = unexpected(path.read_bytes(), results)
    for line in surprises:
        console.print(f"not as expected: {line}", style="red", markup=False)
    sys.exit(1 if surprises else 0)


def run(path: Path, console: Console) -> str:
    """Start everything, score the file, show what came of it, stop everything."""
    results = io.StringIO()
    with ExitStack() as stack:
        judge = stack.enter_context(JudgeStub(rpm=JUDGE_RPM))
        console.print(f"starting an embedded server and {WORKERS} rq workers …")
        # No settings file: a rewardpool.toml that lies about would be another pool's.
        own = LocalPool(workers=WORKERS, settings=settings(judge), config=os.devnull)
        pool = stack.enter_context(own)
        client = stack.enter_context(RewardClient(pool.url, queue=pool.queue))
        started = time.monotonic()
        progress = _Shown(console, total=_lines(path))
        scoring = ScoreRun(
            client, results, timeout_s=120, maths_by_default=True, on_tick=progress.show
        )
        with path.open("rb") as stream:
            summary = scoring.run(stream)
        summary.elapsed_s = time.monotonic() - started
        _report(summary, usage_of(pool.url, "judge"), judge, console)
    return results.getvalue()


def settings(judge: JudgeStub) -> dict[str, dict[str, Any]]:
    """Rules by data source; only judged rows take a lease of the judge's limit."""
    judged = {"base_url": judge.base_url, "model": "stub", "limit": "judge", "max_tokens": 64}
    source = {"function": "builtin:judge", "kwargs": judged, "timeout_s": 60}
    return {"limits": {"judge": LIMIT}, "reward": {"sources": {JUDGED: source}}}


def unexpected(rollouts: bytes, results: str) -> list[str]:
    """Compare each result with what its line says of itself; returns what differs."""
    found = []
    for number, (line, result) in enumerate(
        zip(rollouts.splitlines(), results.splitlines(), strict=True), 1
    ):
        outcome = json.loads(result)
        wanted = "failed" if UNSCORABLE in line else "scored"
        if outcome["status"] != wanted:
            found.append(f"line {number} ({outcome['id']}): {outcome['status']} {outcome['error']}")
    return found


class _Shown:
    """A line a second: readable on a terminal and in a log alike."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._shown = console, total, time.monotonic()

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.done < self._total and now - self._shown < 1:
            return
        self._shown = now
        mean = "-" if progress.mean is None else f"{progress.mean:.3f}"
        self._console.print(
            f"  {progress.done:3d} of {self._total} rows, {progress.failed} failed, "
            f"mean reward {mean}"
        )


def _lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def _report(summary: Summary, usage: Usage, judge: JudgeStub, console: Console) -> None:
    console.print(
        f"\n{summary.rows} rows in {summary.elapsed_s:.1f} s, "
        f"{summary.failed} cannot be scored and say why\n",
        style="bold",
    )
    show_summary(summary, console)
    table = Table(title="What the limit did", title_justify="left", show_header=False)
    caps = f"{JUDGE_RPM} requests a minute, {MAX_CONCURRENT} in flight"
    table.add_row("limit", f"{caps}, for all workers together")
    table.add_row("granted", f"{usage.grants}")
    table.add_row("calls the judge saw", f"{judge.calls}")
    table.add_row("most in flight at the judge", f"{judge.most_in_flight}")
    table.add_row("429s from the judge", f"{judge.refused}")
    console.print(table)


def _example() -> Path:
    for folder in (Path.cwd(), Path(__file__).parents[3]):
        found = folder / "examples" / "rollouts.jsonl"
        if found.is_file():
            return found
    raise click.UsageError("no examples/rollouts.jsonl here: run it in a checkout, or name a FILE")
