"""Every metric by name: what it says and its labels. `docs/metrics.md` shows this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "rewardpool"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: the name without a counter's `_total`, which the exposition adds."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    says: str
    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> str:
        """The name as queries write it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _named(
    name: str, kind: Literal["gauge", "counter", "histogram"], says: str, *labels: str
) -> Metric:
    return Metric(f"{PREFIX}_{name}", kind, says, labels)


REDIS_UP = _named("redis_up", "gauge", "1 while Redis answers, else 0 and nothing else is exported")
REDIS_USED = _named("redis_used_memory_bytes", "gauge", "memory Redis has in use")
REDIS_MAX = _named("redis_max_memory_bytes", "gauge", "Redis' maxmemory; 0 is unlimited")
SUSPENDED = _named("suspended", "gauge", "1 while `rq suspend` holds all workers")

QUEUE_JOBS = _named(
    "queue_jobs", "gauge", "jobs (batches) of a queue by RQ state: queued, started, …",
    "queue", "state",
)  # fmt: skip
QUEUE_WAIT = _named(
    "queue_oldest_wait_seconds", "gauge", "how long the next job has been queued", "queue"
)
QUEUE_WORKERS = _named("queue_workers", "gauge", "workers that listen on a queue", "queue")
WORKERS = _named("workers", "gauge", "registered workers by RQ state: idle, busy, …", "state")
ROWS_IN_FLIGHT = _named("rows_in_flight", "gauge", "trajectories being scored, all workers")
ROWS_PLACES = _named("rows_places", "gauge", "trajectories that all workers can score at once")

OUTCOMES = _named(
    "outcomes", "counter", "trajectories by outcome: `scored`, or the kind of the failure",
    "queue", "data_source", "status",
)  # fmt: skip
REWARD = _named(
    "reward", "histogram", "rewards; rows that were scored with None are not in it",
    "queue", "data_source",
)  # fmt: skip
REWARD_SUM = _named(
    "reward_points", "gauge", "sum of all rewards; negative ones lower it, so use delta()",
    "queue", "data_source",
)  # fmt: skip
WAIT = _named(
    "wait_seconds", "histogram", "time in the queue and for limits, a trajectory",
    "queue", "data_source",
)  # fmt: skip
RUN = _named(
    "run_seconds", "histogram", "time inside the reward function, a trajectory",
    "queue", "data_source",
)  # fmt: skip
TOKENS = _named(
    "response_tokens", "counter", "response tokens of the trajectories with an outcome",
    "queue", "data_source",
)  # fmt: skip
STATS_SKIPPED = _named(
    "stats_skipped", "gauge", "1 where a queue's counters are too many to export", "queue"
)

LIMIT_IN_FLIGHT = _named("limit_in_flight", "gauge", "calls in flight under a limit", "limit")
LIMIT_MAX = _named(
    "limit_max_concurrent", "gauge", "calls admitted at once; absent is unlimited", "limit"
)
LIMIT_WAITING = _named("limit_waiting", "gauge", "calls that wait for a lease", "limit")
LIMIT_LEVEL = _named(
    "limit_bucket_level", "gauge", "what a bucket would grant now; below 0 is a debt",
    "limit", "bucket",
)  # fmt: skip
LIMIT_CAPACITY = _named(
    "limit_bucket_capacity", "gauge", "what a bucket holds at most", "limit", "bucket"
)
LIMIT_RATE = _named(
    "limit_per_minute", "gauge", "what a bucket refills a minute; absent is unlimited",
    "limit", "bucket",
)  # fmt: skip
LIMIT_PAUSE = _named("limit_pause_seconds", "gauge", "what is left of a 429's pause", "limit")
LIMIT_GRANTS = _named("limit_grants", "counter", "leases granted", "limit")
LIMIT_REFUSALS = _named("limit_refusals", "counter", "calls that got no lease", "limit")
LIMIT_RECLAIMED = _named(
    "limit_reclaimed",
    "counter",
    "leases that expired while held: a holder died or stalled",
    "limit",
)
LIMIT_WAITS = _named("limit_waits", "counter", "grants that had to wait in line", "limit")
LIMIT_WAIT_S = _named(
    "limit_wait_seconds", "counter", "time those grants waited, together", "limit"
)
LIMIT_THROTTLES = _named("limit_throttles", "counter", "pauses that a 429 began", "limit")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
