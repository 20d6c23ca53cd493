"""`rewardpool info`: queues and workers, read without unpickling anything."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
import redis
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from worker.ops.address import connect, redis_address
from worker.ops.options import config_option, json_option, redis_option
from worker.ops.pool_facts import WorkerFacts, worker_facts
from worker.ops.rq_state import QueueState, queue_states, suspended, worker_states


@click.command(name="info")
@redis_option
@config_option
@json_option
def command(redis_url: str | None, config: str | None, as_json: bool) -> None:
    """Show queues and workers. Unlike `rq info` it decodes nothing that is stored."""
    connection = connect(redis_address(redis_url, config))
    try:
        queues = queue_states(connection)
        workers = worker_facts(connection, worker_states(connection))
        is_suspended = suspended(connection)
    except redis.RedisError as error:
        raise click.UsageError(f"Redis is unavailable: {error}") from None
    if as_json:
        click.echo(json.dumps(_as_data(queues, workers, is_suspended), indent=2))
        return
    console = Console()
    console.print(_queues(queues, workers))
    console.print(_workers(workers))
    if is_suspended:
        console.print("workers are suspended: `rq resume` lets them go on", style="yellow")


def _as_data(
    queues: list[QueueState], workers: list[WorkerFacts], is_suspended: bool
) -> dict[str, Any]:
    return {
        "queues": [
            {**asdict(queue), "workers": _listening(queue.name, workers)} for queue in queues
        ],
        "workers": [asdict(worker) for worker in workers],
        "suspended": is_suspended,
    }


def _listening(queue: str, workers: list[WorkerFacts]) -> int:
    return sum(queue in worker.queues for worker in workers)


def _queues(queues: list[QueueState], workers: list[WorkerFacts]) -> Table:
    table = Table("queue", *("queued", "oldest s", "started", "failed", "finished", "workers"))
    for queue in queues:
        found = queue.registries
        numbers = (queue.queued, round(queue.oldest_wait_s, 1), found["started"], found["failed"])
        last = (found["finished"], _listening(queue.name, workers))
        table.add_row(escape(queue.name[:80]), *map(str, (*numbers, *last)))
    return table


def _workers(workers: list[WorkerFacts]) -> Table:
    table = Table("worker", "host", "state", "queues", "rows", "heard s", "version")
    for worker in workers:
        heard = "-" if worker.heartbeat_age_s is None else f"{worker.heartbeat_age_s:.0f}"
        rows = f"{worker.rows}/{worker.concurrency}" if worker.ours else "-"
        cells = (worker.name, worker.host, worker.state, ",".join(worker.queues), rows)
        table.add_row(*(escape(cell[:80]) for cell in (*cells, heard, worker.version)))
    return table
