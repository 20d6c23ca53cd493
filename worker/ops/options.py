"""Options that several commands share, and how limits are written on a command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from worker.settings import LimitSettings

redis_option = click.option(
    "--redis",
    "redis_url",
    envvar="REDIS_URL",
    metavar="URL",
    help="Redis or Valkey to use (or REDIS_URL).",
)
config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="REWARDPOOL_CONFIG",
    help="Settings file; by default ./rewardpool.toml if there is one.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, not a table.")


def parse_limits(specs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Read `NAME:rpm=60,max_concurrent=8` into a tree for the settings.

    Raises click.BadParameter, which names the spec and the part at fault.
    """
    limits: dict[str, dict[str, Any]] = {}
    for spec in specs:
        name, colon, rest = spec.partition(":")
        if not (name and colon and rest):
            raise click.BadParameter(f"{spec!r}: write NAME:rpm=60,max_concurrent=8")
        limit = limits.setdefault(name, {})
        for pair in rest.split(","):
            key, equals, value = pair.partition("=")
            if not equals or key not in LimitSettings.model_fields:
                known = ", ".join(LimitSettings.model_fields)
                raise click.BadParameter(f"{spec!r}: {pair!r} is none of {known}")
            limit[key] = value
    return limits
