"""Checks of a deployment: each says what it looked at, what it found, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import redis

from limiter import LimiterError, overview
from queue_client import Output, RewardClient, Trajectory
from queue_client.errors import QueueClientError
from queue_client.protocol import PING_SOURCE
from worker.ops.pool_facts import WorkerFacts, worker_facts
from worker.ops.rq_state import QueueState, queue_states, suspended, worker_states
from worker.pool.describing import describe
from worker.settings import Settings

State = Literal["ok", "warn", "fail"]

LEAST_VERSION = (6, 2)
SKEW_WARN_S, SKEW_FAIL_S = 2.0, 30.0
STARTING_S = 20.0  # a worker is registered before it says anything
ROUND_TRIP_S = 10.0
ROUND_TRIPS = 5
GOOD_POLICY = "noeviction"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    state: State
    said: str


@dataclass(frozen=True, slots=True)
class Scene:
    """What all checks look at, read once."""

    connection: redis.Redis
    url: str
    settings: Settings
    queues: list[QueueState]
    workers: list[WorkerFacts]


def look(connection: redis.Redis, url: str, settings: Settings) -> Scene:
    """Read queues and workers. Raises RedisError."""
    workers = worker_facts(connection, worker_states(connection))
    return Scene(connection, url, settings, queue_states(connection), workers)


def checks(scene: Scene) -> Iterator[Check]:
    """Run every check; one that cannot look is a warning of its own."""
    parts: tuple[Callable[[Scene], Iterable[Check]], ...] = (
        _server,
        _memory,
        _clocks,
        _versions,
        _same_settings,
        _functions,
        _listeners,
        _limits,
    )
    for part in parts:
        name = part.__name__.strip("_").replace("_", " ")
        try:
            yield from part(scene)
        except redis.RedisError as error:
            yield Check(name, "warn", f"not looked at: {error}")


def _server(scene: Scene) -> Iterator[Check]:
    facts: dict[str, Any] = scene.connection.info("server")
    found = str(facts.get("redis_version", "?"))
    digits = found.split(".")[:2]
    known = all(part.isdigit() for part in digits)
    if known and tuple(int(part) for part in digits) < LEAST_VERSION:
        yield Check("server version", "fail", f"{found}; Redis >= 6.2 or Valkey is needed")
    else:
        yield Check("server version", "ok", found)


def _memory(scene: Scene) -> Iterator[Check]:
    facts: dict[str, Any] = scene.connection.info("memory")
    policy, most = facts.get("maxmemory_policy"), int(facts.get("maxmemory", 0))
    if policy == GOOD_POLICY:
        yield Check("maxmemory-policy", "ok", policy)
        return
    state: State = "fail" if most else "warn"
    said = f"{policy} would evict jobs and leases; set `maxmemory-policy {GOOD_POLICY}`"
    yield Check("maxmemory-policy", state, said if most else f"{said} (no maxmemory is set yet)")


def _clocks(scene: Scene) -> Iterator[Check]:
    before = time.time()
    seconds, micros = scene.connection.time()
    here_s = (before + time.time()) / 2 - (seconds + micros / 1e6)
    skews = {"here": here_s}
    for worker in scene.workers:
        if worker.clock_ms is not None:
            skews[f"{worker.host} ({worker.name})"] = worker.clock_ms / 1000
    where, worst = max(skews.items(), key=lambda item: abs(item[1]))
    state: State = "ok"
    if abs(worst) > SKEW_WARN_S:
        state = "fail" if abs(worst) > SKEW_FAIL_S else "warn"
    yield Check("clock skew", state, f"{worst:+.2f} s at most, {where}, against Redis")


def _versions(scene: Scene) -> Iterator[Check]:
    ours = version("rewardpool")
    others = {worker.version for worker in scene.workers if worker.ours} - {ours}
    if others:
        said = f"{ours} here, {', '.join(sorted(others))} on workers"
        yield Check("versions", "warn", said)
    else:
        yield Check("versions", "ok", ours)


def _same_settings(scene: Scene) -> Iterator[Check]:
    hosts: dict[str, set[str]] = {}
    for worker in scene.workers:
        if worker.ours:
            hosts.setdefault(worker.settings, set()).add(worker.host)
    if len(hosts) > 1:
        kinds = "; ".join(f"{key}: {', '.join(sorted(where))}" for key, where in hosts.items())
        yield Check("settings", "warn", f"workers run with different settings: {kinds}")
    else:
        yield Check("settings", "ok", "the same on every worker" if hosts else "no worker to ask")


def _functions(scene: Scene) -> Iterator[Check]:
    found: dict[str, dict[str, set[str]]] = {}
    here: dict[str, str] = json.loads(describe(scene.settings)["functions"])
    for spec, said in here.items():
        found.setdefault(spec, {}).setdefault(said, set()).add("here")
    for worker in scene.workers:
        for spec, said in worker.functions.items():
            found.setdefault(spec, {}).setdefault(said, set()).add(worker.host)
    if not found:
        yield Check("functions", "ok", "none named: rows are routed by data_source")
    for spec, hashes in sorted(found.items()):
        yield _function(spec, hashes)


def _function(spec: str, hashes: dict[str, set[str]]) -> Check:
    name = f"function {spec}"
    broken = {said: where for said, where in hashes.items() if said.startswith("error")}
    if broken:
        said, where = next(iter(broken.items()))
        state: State = "warn" if where == {"here"} else "fail"
        return Check(name, state, f"cannot be imported on {', '.join(sorted(where))}: {said}")
    if len(hashes) > 1:
        kinds = "; ".join(
            f"{key[:12]} on {', '.join(sorted(where))}" for key, where in hashes.items()
        )
        return Check(name, "fail", f"differs between hosts: {kinds}")
    [(said, where)] = hashes.items()
    return Check(name, "ok", f"{said[:12]} on {', '.join(sorted(where))}")


def _listeners(scene: Scene) -> Iterator[Check]:
    if suspended(scene.connection):
        yield Check("suspended", "warn", "workers take nothing: `rq resume` lets them go on")
    if not scene.workers:
        yield Check("workers", "fail", "none is there; start one: rewardpool worker QUEUE")
    for worker in scene.workers:
        if not worker.ours and (worker.age_s is None or worker.age_s > STARTING_S):
            said = "a foreign RQ worker: it cannot score, and stock ones unpickle what is stored"
            yield Check(f"worker {worker.name}", "warn", said)
    served = {queue for worker in scene.workers for queue in worker.queues}
    for queue in scene.queues:
        if queue.name not in served and queue.queued:
            said = f"{queue.queued} jobs wait and no worker listens"
            yield Check(f"queue {queue.name}", "fail", f"{said}: rewardpool worker {queue.name}")
    if scene.workers and served:
        yield Check("workers", "ok", f"{len(scene.workers)} on {', '.join(sorted(served))}")


def _limits(scene: Scene) -> Iterator[Check]:
    try:
        known = {usage.name for usage in overview(scene.url)}
    except LimiterError as error:
        yield Check("limits", "warn", f"not looked at: {error}")
        return
    used = {name for worker in scene.workers for name in worker.limits}
    idle = sorted((known | set(scene.settings.limits)) - used)
    if idle and scene.workers:
        yield Check("limits", "warn", f"no worker uses {', '.join(idle)}")
    else:
        yield Check("limits", "ok", ", ".join(sorted(used)) or "none")


def round_trip(url: str, queues: Iterable[str]) -> Iterator[Check]:
    """Send pings, which no reward function sees, through every queue and back."""
    with RewardClient(url) as client:
        for queue in queues:
            name = f"round trip {queue}"
            try:
                times = [_ping(client, queue) for _ in range(ROUND_TRIPS)]
            except QueueClientError as error:
                yield Check(name, "fail", str(error))
                return
            lost = [said for said in times if isinstance(said, str)]
            if lost:
                yield Check(name, "fail", lost[0])
            else:
                found = sorted(said for said in times if isinstance(said, float))
                yield Check(name, "ok", f"{found[len(found) // 2] * 1000:.1f} ms, the median")


def _ping(client: RewardClient, queue: str) -> float | str:
    row = Trajectory(outputs=[Output(text="ping")], data_source=PING_SOURCE)
    began = time.monotonic()
    [outcome] = client.score([row], queue=queue, timeout_s=ROUND_TRIP_S)
    return time.monotonic() - began if outcome.ok else f"{outcome.kind}: {outcome.message}"
