"""`rewardpool limits`: how every limit stands, and live changes to them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from limiter import (
    BadLimits,
    LimiterError,
    LimiterUnavailable,
    Limits,
    UnknownLimit,
    Usage,
    declare_limits,
    overview,
    reset_limits,
    resume_limit,
    set_limits,
    usage_of,
)
from limiter.admin import operator
from worker.ops.address import redis_address
from worker.ops.options import config_option, json_option, redis_option
from worker.settings import SettingsError, load_settings

WATCH_S = 1.0


class Wrong(click.ClickException):
    """One line: what and where."""

    exit_code = 2


UNLIMITED = ("none", "unlimited")


@click.group(name="limits", invoke_without_command=True)
@click.option("--watch", is_flag=True, help="Show a live table until Ctrl-C.")
@click.option("--every-s", default=WATCH_S, show_default=True, help="Pace of --watch.")
@redis_option
@config_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    watch: bool,
    every_s: float,
    redis_url: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Show how every limit stands; `set`, `reset` and `resume` change one live."""
    ctx.obj = (redis_url, config, as_json)
    if ctx.invoked_subcommand is not None:
        return
    url = redis_address(redis_url, config)
    with _plain_errors():
        if watch and not as_json:
            _watch(url, max(0.1, every_s))
        elif watch:
            while True:
                click.echo(json.dumps(_as_data(overview(url))))
                time.sleep(max(0.1, every_s))
        else:
            _show(overview(url), as_json=as_json)


@command.command(name="set")
@click.argument("name")
@click.option("--max-concurrent", metavar="N", help="Calls in flight; none is unlimited, 0 closes.")
@click.option("--rpm", metavar="N", help="Requests a minute; none is unlimited, 0 closes.")
@click.option("--tpm", metavar="N", help="Tokens a minute; none is unlimited, 0 closes.")
@click.option("--burst-s", metavar="S", help="Seconds' worth of the rate that a bucket holds.")
@click.option("--strict/--no-strict", default=None, help="No 60 s ever admit more than the limit.")
@click.option("--oversize", type=click.Choice(["alone", "error"]), help="Calls above the burst.")
@click.option("--refund/--no-refund", default=None, help="Give unused tokens back.")
@redis_option
@config_option
@json_option
@click.pass_context
def set_command(
    ctx: click.Context,
    /,
    name: str,
    redis_url: str | None,
    config: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Change the limit NAME for every process at once; it outlives restarts until `reset`."""
    changes = {key: _value(key, value) for key, value in options.items() if value is not None}
    if not changes:
        raise Wrong("nothing to change: give --rpm, --tpm, --max-concurrent, --burst-s…")
    url, as_json = _common(ctx, redis_url, config, as_json)
    with _plain_errors():
        _declare_from_settings(url, name, config or ctx.obj[1])
        _show([set_limits(url, name, by=operator(), **changes)], as_json=as_json)


@command.command(name="reset")
@click.argument("name")
@redis_option
@config_option
@json_option
@click.pass_context
def reset_command(
    ctx: click.Context, name: str, redis_url: str | None, config: str | None, as_json: bool
) -> None:
    """Go back to what the programs declare for the limit NAME."""
    url, as_json = _common(ctx, redis_url, config, as_json)
    with _plain_errors():
        _show([reset_limits(url, name, by=operator())], as_json=as_json)


@command.command(name="resume")
@click.argument("name")
@redis_option
@config_option
@json_option
@click.pass_context
def resume_command(
    ctx: click.Context, name: str, redis_url: str | None, config: str | None, as_json: bool
) -> None:
    """Lift the pause of the limit NAME that a 429 began."""
    url, as_json = _common(ctx, redis_url, config, as_json)
    with _plain_errors():
        left_s = resume_limit(url, name)
        if as_json:
            _show([usage_of(url, name)], as_json=True)
        else:
            click.echo(f"{name}: resumed, {left_s:g} s of the pause were left")


def _declare_from_settings(url: str, name: str, config: str | None) -> None:
    """A limit that no program has used yet may stand in the settings file."""
    try:
        usage_of(url, name)
    except UnknownLimit:
        try:
            found = load_settings(config).limits.get(name)
        except SettingsError as error:
            raise Wrong(str(error)) from None
        if found is not None:
            declare_limits(url, Limits(name=name, **found.model_dump()), by=operator())


def _common(
    ctx: click.Context, redis_url: str | None, config: str | None, as_json: bool
) -> tuple[str, bool]:
    """Options stand before or after the subcommand; the nearer one wins."""
    outer_url, outer_config, outer_json = ctx.obj
    return redis_address(redis_url or outer_url, config or outer_config), as_json or outer_json


def _value(field: str, value: Any) -> Any:
    if not isinstance(value, str) or field == "oversize":
        return value
    if value.lower() in UNLIMITED:
        return None
    try:
        return float(value) if field == "burst_s" else int(value.replace("_", ""))
    except ValueError:
        option = field.replace("_", "-")
        raise Wrong(f"--{option}: must be a number or none, got {value!r}") from None


@contextmanager
def _plain_errors() -> Iterator[None]:
    """One line and exit code 2 for what the user can mend."""
    try:
        yield
    except (BadLimits, UnknownLimit) as error:
        raise Wrong(str(error)) from None
    except LimiterUnavailable as error:
        raise Wrong(f"Redis is unavailable: {error.reason}") from None
    except LimiterError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        pass


def _watch(url: str, every_s: float) -> None:
    console = Console()
    with Live(_table(overview(url)), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            try:
                live.update(_table(overview(url)), refresh=True)
            except LimiterUnavailable as error:
                live.update(f"Redis is unavailable: {error.reason}", refresh=True)


def _show(usages: Sequence[Usage], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_data(usages), indent=2))
    elif usages:
        Console().print(_table(usages))
    else:
        click.echo("no limits yet: they appear when a program first uses them")


def _as_data(usages: Sequence[Usage]) -> list[dict[str, Any]]:
    return [asdict(usage) | {"mean_wait_s": usage.mean_wait_s} for usage in usages]


def _table(usages: Sequence[Usage]) -> Table:
    """Narrow enough for 80 columns: rates on a line of their own, who set what below the table."""
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False, caption_justify="left")
    table.add_column("limit", overflow="fold")
    for column in ("in flight", "waiting", "requests", "tokens", "pause", "granted", "refused"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("reclaimed", "wait"):
        table.add_column(column, justify="right", no_wrap=True)
    for usage in usages:
        table.add_row(Text(usage.name), *_cells(usage))
    table.caption = Text("\n".join(f"{usage.name}: {_changed(usage)}" for usage in usages))
    return table


def _cells(usage: Usage) -> list[str]:
    limits = usage.limits
    most = "∞" if limits.max_concurrent is None else _short(limits.max_concurrent)
    waiting = f"{usage.waiting:,}"
    if usage.waiting:
        waiting += f"\n{usage.oldest_wait_s:.1f} s"
    return [
        f"{_short(usage.in_flight)}/{most}",
        waiting,
        _bucket(usage.rpm_level, usage.rpm_capacity, limits.rpm),
        _bucket(usage.tpm_level, usage.tpm_capacity, limits.tpm),
        f"{usage.pause_s:.1f} s" if usage.pause_s else "-",
        _short(usage.grants),
        _short(usage.refusals),
        _short(usage.reclaimed),
        f"{usage.mean_wait_s:.2f} s" if usage.waits else "-",
    ]


def _bucket(level: float | None, capacity: int | None, limit: int | None) -> str:
    if level is None or capacity is None or limit is None:
        return "∞"
    return f"{_short(int(level))}/{_short(capacity)}\n{_short(limit)}/min"


def _short(number: int) -> str:
    """A count in at most six characters; negative levels are debts."""
    if abs(number) < 10_000:
        return str(number)
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if abs(number) < 1000 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.1e}"


def _changed(usage: Usage) -> str:
    at = datetime.fromtimestamp(usage.changed_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    how = "set by" if usage.source == "operator" else "declared by"
    return f"{how} {usage.changed_by} at {at}"
