"""Many jobs through one worker, and what it holds meanwhile."""

from __future__ import annotations

import psutil
import redis
from pool_support import Producer, Workers, await_true

from queue_client import protocol


def usage(process: psutil.Process) -> tuple[float, int, int, int]:
    """Memory in MiB, file descriptors, threads, children."""
    with process.oneshot():
        return (
            process.memory_info().rss / 2**20,
            process.num_fds(),
            process.num_threads(),
            len(process.children(recursive=True)),
        )


def run_many(
    workers: Workers, producer: Producer, connection: redis.Redis, jobs: int
) -> list[tuple[float, int, int, int]]:
    """Run jobs of which 1 in 20 fails, each way a row can; returns the usage along the way."""
    ways = [{"fail": "timeout"}, {"do": "raise"}, {"do": "exit"}, {"fail": "scorer_error"}]
    worker = psutil.Process(workers.start().pid)
    measured = []
    for part in range(10):
        for number in range(jobs // 10):
            failing = number % 20 == 0
            producer.send([ways[number // 20 % 4] if failing else {}])
            if number % 500 == 499:
                bad = protocol.Reference(protocol.new_job_id(producer.id), 1)
                producer.enqueue(bad, b"not a payload")
        producer.collect(jobs // 10, timeout_s=240)
        failed = sum(not outcome.ok for outcome in producer.outcomes.values())
        assert failed == jobs // 10 // 20
        producer.outcomes.clear()
        await_true(lambda: connection.zcard("rq:wip:rewards") == 0)
        measured.append(usage(worker))
        assert part >= 0
    return measured


def check_flat(measured: list[tuple[float, int, int, int]]) -> None:
    settled, last = measured[3], measured[-1]
    assert last[0] - settled[0] < 10, f"memory grows: {measured}"
    assert last[1] <= settled[1], f"file descriptors grow: {measured}"
    assert last[2] <= settled[2], f"threads grow: {measured}"
    assert last[3] == settled[3] == 0, f"children grow: {measured}"
