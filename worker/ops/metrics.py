"""The pool as Prometheus metrics, read from Redis when asked: nothing runs between two scrapes."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from limiter import Usage
from queue_client.protocol import REWARD_BOUNDS, TIME_BOUNDS_S
from worker.ops import metric_names as names
from worker.ops.limit_state import LimitReader
from worker.ops.metric_names import Metric
from worker.ops.outcome_stats import QueueStats, outcome_stats
from worker.ops.pool_facts import worker_facts
from worker.ops.rq_state import (
    QueueState,
    WorkerState,
    queue_states,
    suspended,
    worker_states,
)

logger = logging.getLogger(__name__)

STATES = ("busy", "idle", "suspended")  # always there: an absent series alerts nobody

_FAMILIES: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


class PoolCollector(Collector):
    """Reads everything at each scrape, a dozen round trips; a dead Redis is a metric, no error."""

    def __init__(self, connection: redis.Redis) -> None:
        self._connection = connection
        self._limits = LimitReader(connection)

    def collect(self) -> Iterable[Family]:
        """Return all families, or only `rewardpool_redis_up` 0."""
        try:
            return self._read()
        except redis.exceptions.RedisError as error:
            logger.warning("scrape failed error=%s", type(error).__name__)
            return [_gauge(names.REDIS_UP, 0)]

    def _read(self) -> list[Family]:
        connection = self._connection
        info: dict[str, Any] = connection.info("memory")
        queues = queue_states(connection)
        workers = worker_states(connection)
        families = [
            _gauge(names.REDIS_UP, 1),
            _gauge(names.REDIS_USED, info.get("used_memory", 0)),
            _gauge(names.REDIS_MAX, info.get("maxmemory", 0)),
            _gauge(names.SUSPENDED, int(suspended(connection))),
        ]
        families += _queue_families(queues)
        families += _worker_families(queues, workers)
        facts = worker_facts(connection, workers)
        families.append(_gauge(names.ROWS_IN_FLIGHT, sum(one.rows for one in facts)))
        families.append(_gauge(names.ROWS_PLACES, sum(one.concurrency for one in facts)))
        families += limit_families([usage for usage, _ in self._limits.read()])
        families += outcome_families(outcome_stats(connection, [queue.name for queue in queues]))
        return families


def _queue_families(queues: list[QueueState]) -> Iterator[Family]:
    jobs, waits = _family(names.QUEUE_JOBS), _family(names.QUEUE_WAIT)
    for queue in queues:
        jobs.add_metric([queue.name, "queued"], queue.queued)
        for state, count in queue.registries.items():
            jobs.add_metric([queue.name, state], count)
        waits.add_metric([queue.name], queue.oldest_wait_s)
    yield from (jobs, waits)


def _worker_families(queues: list[QueueState], workers: list[WorkerState]) -> Iterator[Family]:
    states, listening = _family(names.WORKERS), _family(names.QUEUE_WORKERS)
    counted = Counter(worker.state for worker in workers)
    for state in sorted(counted.keys() | set(STATES)):
        states.add_metric([state], counted[state])
    heard = Counter(queue for worker in workers for queue in worker.queues)
    for name in sorted({queue.name for queue in queues} | set(heard)):
        listening.add_metric([name], heard[name])
    yield from (states, listening)


def outcome_families(stats: list[QueueStats]) -> Iterator[Family]:
    """Turn the counters that workers keep into families."""
    outcomes, tokens = _family(names.OUTCOMES), _family(names.TOKENS)
    waits, runs = _family(names.WAIT), _family(names.RUN)
    rewards, points = _family(names.REWARD), _family(names.REWARD_SUM)
    skipped = _family(names.STATS_SKIPPED)
    for queue in stats:
        skipped.add_metric([queue.queue], int(queue.skipped))
        by_source: dict[str, Any] = defaultdict(list)
        for (source, status), tally in queue.tallies.items():
            outcomes.add_metric([queue.queue, source, status], tally.rows)
            by_source[source].append(tally)
        for source, tallies in by_source.items():
            where = [queue.queue, source]
            tokens.add_metric(where, sum(tally.tokens for tally in tallies))
            points.add_metric(where, sum(tally.reward for tally in tallies))
            rows = sum(tally.rows for tally in tallies)
            waited = _histogram((tally.wait_le for tally in tallies), TIME_BOUNDS_S, rows)
            waits.add_metric(where, waited, sum(tally.wait_ms for tally in tallies) / 1000)
            ran = _histogram((tally.run_le for tally in tallies), TIME_BOUNDS_S, rows)
            runs.add_metric(where, ran, sum(tally.run_ms for tally in tallies) / 1000)
            rewards.add_metric(
                where, _histogram((tally.reward_le for tally in tallies), REWARD_BOUNDS, 0), None
            )
    yield from (outcomes, tokens, waits, runs, rewards, points, skipped)


def limit_families(usages: list[Usage]) -> Iterator[Family]:
    """Turn what each limit says about itself into families."""
    always: list[tuple[Metric, Callable[[Usage], float]]] = [
        (names.LIMIT_IN_FLIGHT, lambda usage: usage.in_flight),
        (names.LIMIT_WAITING, lambda usage: usage.waiting),
        (names.LIMIT_PAUSE, lambda usage: usage.pause_s),
        (names.LIMIT_GRANTS, lambda usage: usage.grants),
        (names.LIMIT_REFUSALS, lambda usage: usage.refusals),
        (names.LIMIT_RECLAIMED, lambda usage: usage.reclaimed),
        (names.LIMIT_WAITS, lambda usage: usage.waits),
        (names.LIMIT_WAIT_S, lambda usage: usage.wait_s_total),
        (names.LIMIT_THROTTLES, lambda usage: usage.throttles),
    ]
    for metric, read in always:
        family = _family(metric)
        for usage in usages:
            family.add_metric([usage.name], read(usage))
        yield family
    yield from _capped_families(usages)


def _capped_families(usages: list[Usage]) -> Iterator[Family]:
    """What an unlimited layer does not have is left out, not 0."""
    most, rates = _family(names.LIMIT_MAX), _family(names.LIMIT_RATE)
    levels, capacities = _family(names.LIMIT_LEVEL), _family(names.LIMIT_CAPACITY)
    for usage in usages:
        limits = usage.limits
        if limits.max_concurrent is not None:
            most.add_metric([usage.name], limits.max_concurrent)
        for bucket, rate, level, capacity in (
            ("requests", limits.rpm, usage.rpm_level, usage.rpm_capacity),
            ("tokens", limits.tpm, usage.tpm_level, usage.tpm_capacity),
        ):
            if rate is not None and level is not None and capacity is not None:
                rates.add_metric([usage.name, bucket], rate)
                levels.add_metric([usage.name, bucket], level)
                capacities.add_metric([usage.name, bucket], capacity)
    yield from (most, rates, levels, capacities)


def _histogram(
    counts: Iterable[dict[str, int]], bounds: tuple[float, ...], rows: int
) -> list[tuple[str, float]]:
    """Add up counts by bound, then cumulate them; every known bound is always there.

    Rows without a count by bound (a worker of another version wrote them) are above all bounds.
    """
    added = Counter({f"{bound:g}": 0 for bound in bounds})
    for one in counts:
        added.update(one)
    above = added.pop("inf", 0)
    running, buckets = 0, []
    for bound in sorted(added, key=float):
        running += added[bound]
        buckets.append((bound, float(running)))
    return [*buckets, ("+Inf", float(max(running + above, rows)))]


def _family(metric: Metric) -> Any:
    return _FAMILIES[metric.kind](metric.name, metric.says, labels=list(metric.labels))


def _gauge(metric: Metric, value: float) -> Family:
    family = GaugeMetricFamily(metric.name, metric.says)
    family.add_metric([], value)
    return family
