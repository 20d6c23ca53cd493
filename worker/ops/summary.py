"""What came of a run: rewards by data source, failures by kind, where the time went."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from queue_client.outcome import Outcome

SLOWEST = 5
EXAMPLES = 4  # of one kind of failure
#: Percentiles come from at most this many rows, evenly thinned, so that memory stays flat.
MAX_SAMPLES = 20_000


class Samples:
    """Times of a run, thinned by halves when they grow; seconds."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._keep_every, self._seen = 1, 0
        self.max = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.max = max(self.max, value)
        if self._seen % self._keep_every == 0:
            self._values.append(value)
            if len(self._values) >= MAX_SAMPLES:
                self._values = self._values[::2]
                self._keep_every *= 2
        self._seen += 1

    def percentiles(self) -> dict[str, float]:
        """p50, p95 and max, seconds; zeros when there was nothing."""
        if not self._values:
            return {"p50": 0.0, "p95": 0.0, "max": 0.0}
        p50, p95 = np.percentile(self._values, [50, 95])
        return {"p50": float(p50), "p95": float(p95), "max": self.max}


@dataclass
class SourceTotals:
    """One data source's rows."""

    rows: int = 0
    failed: int = 0
    skipped: int = 0
    total: float = 0.0
    lowest: float = float("inf")
    highest: float = float("-inf")

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.rows += 1
        if not outcome.ok:
            self.failed += 1
        elif outcome.reward is None:
            self.skipped += 1
        else:
            self.total += outcome.reward
            self.lowest = min(self.lowest, outcome.reward)
            self.highest = max(self.highest, outcome.reward)

    @property
    def rewarded(self) -> int:
        """Rows that have a number."""
        return self.rows - self.failed - self.skipped

    def as_json(self) -> dict[str, Any]:
        """Plain values; None where no row has a reward."""
        some = self.rewarded > 0
        return {
            "rows": self.rows,
            "scored": self.rewarded,
            "failed": self.failed,
            "skipped": self.skipped,
            "mean": self.total / self.rewarded if some else None,
            "min": self.lowest if some else None,
            "max": self.highest if some else None,
        }


@dataclass
class Summary:
    """Totals of a run, fed outcome by outcome; its memory does not grow with the rows."""

    sources: dict[str, SourceTotals] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[tuple[Any, str]]] = field(default_factory=dict)
    wait: Samples = field(default_factory=Samples)
    run: Samples = field(default_factory=Samples)
    slowest: list[tuple[float, str, float, float]] = field(default_factory=list)
    by_default: int = 0
    elapsed_s: float = 0.0

    def add(self, row_id: Any, source: str, outcome: Outcome) -> None:
        """Count one row."""
        self.sources.setdefault(source, SourceTotals()).add(outcome)
        self.wait.add(outcome.wait_s)
        self.run.add(outcome.run_s)
        if outcome.kind is not None:
            self.kinds[outcome.kind.value] += 1
            examples = self.examples.setdefault(outcome.kind.value, [])
            if len(examples) < EXAMPLES:
                examples.append((row_id, outcome.message))
        took = (outcome.wait_s + outcome.run_s, str(row_id), outcome.wait_s, outcome.run_s)
        push = heapq.heappush if len(self.slowest) < SLOWEST else heapq.heappushpop
        push(self.slowest, took)

    @property
    def rows(self) -> int:
        """All rows so far."""
        return sum(totals.rows for totals in self.sources.values())

    @property
    def failed(self) -> int:
        """Failed rows so far."""
        return sum(totals.failed for totals in self.sources.values())

    def mean(self) -> float | None:
        """The mean reward of the rows that have one."""
        count = sum(totals.rewarded for totals in self.sources.values())
        total = sum(totals.total for totals in self.sources.values())
        return total / count if count else None

    def as_json(self) -> dict[str, Any]:
        """The whole summary as plain values."""
        return {
            "rows": self.rows,
            "failed": self.failed,
            "mean_reward": self.mean(),
            "elapsed_s": self.elapsed_s,
            "by_data_source": {name: totals.as_json() for name, totals in self.sources.items()},
            "failures": dict(self.kinds),
            "wait_s": self.wait.percentiles(),
            "run_s": self.run.percentiles(),
            "slowest": [
                {"id": row_id, "wait_s": wait, "run_s": run}
                for _, row_id, wait, run in sorted(self.slowest, reverse=True)
            ],
            "to_maths_verifier": self.by_default,
        }


def show_summary(summary: Summary, console: Console) -> None:
    """Print the tables: what the rewards are, what failed, what was slow."""
    console.print(_rewards(summary))
    if summary.kinds:
        console.print(_failures(summary))
    console.print(_times(summary))
    if summary.by_default:
        console.print(
            f"{summary.by_default} rows with a ground truth and no data source "
            "went to the maths verifier."
        )


def _rewards(summary: Summary) -> Table:
    table = Table(title="Rewards by data source", title_justify="left")
    table.add_column("data source", overflow="fold")
    for name in ("rows", "scored", "failed", "mean", "min", "max"):
        table.add_column(name, justify="right")
    for name, totals in sorted(summary.sources.items()):
        facts = totals.as_json()
        numbers = ["-" if facts[k] is None else f"{facts[k]:.3f}" for k in ("mean", "min", "max")]
        counts = [f"{facts[k]:,}" for k in ("rows", "scored", "failed")]
        table.add_row(Text(name), *counts, *numbers)
    return table


def _failures(summary: Summary) -> Table:
    table = Table(title="Failures by kind", title_justify="left")
    table.add_column("kind")
    table.add_column("rows", justify="right")
    table.add_column("for example", overflow="fold")
    for kind, count in summary.kinds.most_common():
        for place, (row_id, message) in enumerate(summary.examples[kind]):
            shown = Text(f"{row_id}: {message if len(message) <= 90 else message[:87] + '...'}")
            table.add_row(*((kind, f"{count:,}") if place == 0 else ("", "")), shown)
    return table


def _times(summary: Summary) -> Table:
    table = Table(title="Where the time went (seconds a row)", title_justify="left")
    table.add_column("")
    for name in ("p50", "p95", "max"):
        table.add_column(name, justify="right")
    for label, samples in (("waiting (queue and limits)", summary.wait), ("running", summary.run)):
        table.add_row(label, *(f"{v:.3f}" for v in samples.percentiles().values()))
    for took, row_id, wait, run in sorted(summary.slowest, reverse=True)[:3]:
        shown = row_id if len(row_id) <= 40 else row_id[:37] + "..."
        table.add_row(Text(f"slow: {shown}"), "", "", f"{took:.3f} ({wait:.2f} + {run:.2f})")
    return table
