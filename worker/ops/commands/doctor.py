"""`rewardpool doctor`: checks of a deployment, from wherever it is run."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
import redis
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from queue_client.protocol import DEFAULT_QUEUE
from worker.ops.address import connect
from worker.ops.doctor import Check, checks, look, round_trip
from worker.ops.options import config_option, json_option, redis_option
from worker.settings import Settings, SettingsError, load_settings

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(name="doctor")
@redis_option
@config_option
@json_option
@click.option("--round-trip", is_flag=True, help="Also send a ping through every queue and back.")
@click.option("--queue", "queues", multiple=True, help="Queue for --round-trip; repeatable.")
def command(
    redis_url: str | None,
    config: str | None,
    as_json: bool,
    round_trip: bool,
    queues: tuple[str, ...],
) -> None:
    """Check server, clocks, settings, functions, workers and limits.

    Exit code 0: nothing failed (warnings may stand), 1: something failed, 2: wrong settings.
    """
    try:
        settings = load_settings(config)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    found = _checks(redis_url or settings.redis.url, settings, round_trip, queues)
    if as_json:
        click.echo(json.dumps([asdict(check) for check in found], indent=2))
    else:
        Console().print(_table(found))
    raise SystemExit(int(any(check.state == "fail" for check in found)))


def _checks(url: str, settings: Settings, pings: bool, queues: tuple[str, ...]) -> list[Check]:
    try:
        scene = look(connect(url), url, settings)
    except redis.RedisError as error:
        return [Check("redis", "fail", f"cannot be reached: {error}")]
    found = list(checks(scene))
    if pings:
        served = sorted(
            {queue for worker in scene.workers if worker.ours for queue in worker.queues}
        )
        found += round_trip(url, queues or served or [DEFAULT_QUEUE])
    return found


def _table(found: list[Check]) -> Table:
    table = Table("check", "", "found")
    for check in found:
        colour = COLOURS[check.state]
        said = f"[{colour}]{check.state}[/{colour}]"
        table.add_row(escape(check.name[:80]), said, escape(check.said[:500]))
    return table
