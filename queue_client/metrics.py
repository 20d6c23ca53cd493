"""Numbers about outcomes, under the names that verl's and TRL's dashboards know."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from queue_client.outcome import Outcome

MAX_NAMES = 200  # extra fields that are counted
MAX_GROUPS = 10_000  # groups (uids) whose spread is watched between two calls of metrics()


@dataclass(slots=True)
class Spread:
    """Count, mean, spread and range of numbers, one at a time (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, value: float) -> None:
        """Take one number into account."""
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self.squares += step * (value - self.mean)
        self.least, self.most = min(self.least, value), max(self.most, value)

    @property
    def std(self) -> float:
        """Sample standard deviation; 0 for fewer than two numbers."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0


class Tally:
    """Outcomes added up; memory does not grow with their number. Not thread-safe."""

    def __init__(self) -> None:
        self.rows = 0
        self.skipped = 0
        self.kinds: dict[str, int] = {}
        self.reward = Spread()
        self.extras: dict[str, Spread] = {}
        self.wait_s, self.run_s = Spread(), Spread()
        self.groups: dict[str, Spread] = {}

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.rows += 1
        self.wait_s.add(outcome.wait_s)
        self.run_s.add(outcome.run_s)
        if not outcome.ok:
            kind = str(outcome.kind)
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            return
        if outcome.reward is None:
            self.skipped += 1
        else:
            self._add_reward(outcome.reward, outcome.uid)
        for name, value in outcome.extra.items():
            if isinstance(value, bool | int | float) and math.isfinite(value):
                self._spread(self.extras, name, MAX_NAMES, float(value))

    def _add_reward(self, reward: float, uid: str | None) -> None:
        self.reward.add(reward)
        if uid is not None:
            self._spread(self.groups, uid, MAX_GROUPS, reward)

    @staticmethod
    def _spread(spreads: dict[str, Spread], name: str, most: int, value: float) -> None:
        spread = spreads.get(name)
        if spread is None:
            if len(spreads) >= most:
                return
            spread = spreads[name] = Spread()
        spread.add(value)

    def metrics(self) -> dict[str, float]:
        """Return the numbers by name; empty when nothing was counted.

        Means are over rows with a reward; `failed_frac`, `skipped_frac` and `error/<kind>` are
        fractions of all rows. Groups are rows of one uid.
        """
        if not self.rows:
            return {}
        failed = sum(self.kinds.values())
        found = {
            "failed_frac": failed / self.rows,
            "skipped_frac": self.skipped / self.rows,
            "timing_s/reward_wait/mean": self.wait_s.mean,
            "timing_s/reward_wait/max": self.wait_s.most,
            "timing_s/reward_run/mean": self.run_s.mean,
            "timing_s/reward_run/max": self.run_s.most,
        }
        found |= {f"error/{kind}": count / self.rows for kind, count in self.kinds.items()}
        if self.reward.count:
            found |= self._reward_metrics()
        for name, spread in self.extras.items():
            found[f"rewards/{name}/mean"], found[f"rewards/{name}/std"] = spread.mean, spread.std
            found[f"reward_extra/{name}/mean"] = spread.mean
        return found

    def _reward_metrics(self) -> dict[str, float]:
        reward = self.reward
        found = {"reward": reward.mean, "reward_std": reward.std}
        for name in ("critic/score", "critic/rewards"):
            found[f"{name}/mean"] = reward.mean
            found[f"{name}/max"], found[f"{name}/min"] = reward.most, reward.least
        groups = [group for group in self.groups.values() if group.count > 1]
        if groups:
            flat = sum(group.least == group.most for group in groups)
            found["frac_reward_zero_std"] = flat / len(groups)
        return found


def metrics_of(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return the numbers of these outcomes."""
    tally = Tally()
    for outcome in outcomes:
        tally.add(outcome)
    return tally.metrics()


class Meter:
    """A client's counters: since it was made, and since they were last asked for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tally = Tally()
        self._began: float | None = None
        self._ended: float | None = None
        self.submitted = self.done = self.failed = 0

    def began(self, rows: int) -> None:
        """Note that rows were handed over."""
        with self._lock:
            self.submitted += rows
            if self._began is None:
                self._began = time.monotonic()

    def told(self, outcome: Outcome) -> None:
        """Note an outcome."""
        with self._lock:
            self._tally.add(outcome)
            self.done += 1
            self.failed += not outcome.ok
            self._ended = time.monotonic()

    def collect(self) -> dict[str, float]:
        """Return the numbers since the last call and begin anew."""
        with self._lock:
            tally, self._tally = self._tally, Tally()
            began, ended = self._began, self._ended
            self._began = self._ended = None
        found = tally.metrics()
        if began is not None and ended is not None:
            found["timing_s/reward"] = ended - began
        return found
