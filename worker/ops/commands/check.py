"""`rewardpool check my_reward.py`: try a reward function before a large run."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

import click

from queue_client import Trajectory
from queue_client.rollouts import read_rollouts
from worker.ops.embedded import EmbeddedServer, NoServer
from worker.ops.options import config_option, json_option, redis_option
from worker.ops.reward_check import Check, Examples, check_function
from worker.rewards.errors import BadInput
from worker.rewards.registry import PREFIX, builtin
from worker.settings import (
    RedisSettings,
    RewardFields,
    Settings,
    SettingsError,
    load_settings,
    settings_from,
)

DEFAULT_NAME = "compute_score"
NO_RETRIES = {"upstream_error": 0, "upstream_rate_limited": 0, "sandbox_error": 0}


@click.command(name="check")
@click.argument("function", metavar="FILE.py[:NAME]")
@click.option("--right", multiple=True, metavar="TEXT", help="A right response; repeatable.")
@click.option("--wrong", multiple=True, metavar="TEXT", help="A wrong response; repeatable.")
@click.option("--ground-truth", default="42", show_default=True, help="Of the task tried.")
@click.option("--data-source", help="Of the task tried.")
@click.option("--extra-info", metavar="JSON", default="{}", help="Of the task tried.")
@click.option("--rows", type=click.File("rb"), help="A rollout file (JSON Lines) to try as well.")
@click.option("--max-rows", type=click.IntRange(1), default=50, show_default=True)
@click.option("--kwargs", metavar="JSON", help="Keyword arguments for the function.")
@click.option("--timeout-s", type=float, default=5.0, show_default=True, help="For each row.")
@redis_option
@config_option
@json_option
def command(
    function: str,
    right: tuple[str, ...],
    wrong: tuple[str, ...],
    ground_truth: str,
    data_source: str | None,
    extra_info: str,
    rows: BinaryIO | None,
    max_rows: int,
    kwargs: str | None,
    timeout_s: float,
    redis_url: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Try a reward function (FILE.py[:NAME], package.module:NAME or builtin:NAME).

    Checks that it rewards a right response above a wrong one, survives malformed ones, gives the
    same twice, returns what the pool can use, and is quick. Exit code 1 if a check failed.
    Limits are taken in the Redis that is named here or in the settings, else in an embedded one.
    """
    examples = Examples(
        ground_truth=ground_truth,
        data_source=data_source,
        extra_info=_json_object("--extra-info", extra_info),
        right=right,
        wrong=wrong,
        rows=_read(rows, max_rows),
    )
    given = None if kwargs is None else _json_object("--kwargs", kwargs)
    try:
        spec = spec_of(function)
        settings = settings_for(
            load_settings(config),
            spec,
            kwargs=given,
            timeout_s=timeout_s,
            data_source=data_source,
        )
        with _limits_somewhere(settings, redis_url) as settings:
            checks = asyncio.run(check_function(settings, examples))
    except (SettingsError, BadInput) as error:
        raise click.UsageError(str(error)) from None
    except NoServer as error:
        raise click.ClickException(str(error)) from None
    show(spec, checks, as_json=as_json)
    sys.exit(1 if any(each.status == "failed" for each in checks) else 0)


def spec_of(function: str) -> str:
    """Return the full spec: `my_reward.py` means `my_reward.py:compute_score`."""
    if function.startswith(PREFIX):
        builtin(function)
        return function
    return f"{function}:{DEFAULT_NAME}" if function.endswith(".py") else function


def settings_for(
    settings: Settings,
    spec: str,
    *,
    kwargs: dict[str, Any] | None,
    timeout_s: float,
    data_source: str | None = None,
) -> Settings:
    """Return settings that score every row by this function, once, and route nothing.

    Where the file already uses the function, its arguments and limit there are the defaults.
    """
    used = _use_of(settings, spec, data_source)
    tree = settings.model_dump(exclude={"reward"}, exclude_defaults=True)
    tree["reward"] = {
        "function": spec,
        "kwargs": (used.kwargs if used else {}) if kwargs is None else kwargs,
        "limit": used.limit if used else None,
        "executor": used.executor if used else None,
        "timeout_s": timeout_s,
        "limit_wait_s": timeout_s,
        "tokenizer": settings.reward.tokenizer,
        "retries": NO_RETRIES,
    }
    return settings_from(tree, where="check")


@contextmanager
def _limits_somewhere(settings: Settings, redis_url: str | None) -> Iterator[Settings]:
    """Settings with a Redis that can be reached; a function without limits needs none."""
    if redis_url is None and (not settings.limits or "url" in settings.redis.model_fields_set):
        yield settings
        return
    with ExitStack() as stack:
        url = redis_url or stack.enter_context(EmbeddedServer()).url
        yield settings.model_copy(update={"redis": RedisSettings(url=url)})


def _use_of(settings: Settings, spec: str, data_source: str | None) -> RewardFields | None:
    sources = settings.reward.sources
    first = [sources[data_source]] if data_source in sources else []
    uses = [*first, settings.reward, *sources.values()]
    return next((each for each in uses if each.function == spec), None)


def show(spec: str, checks: list[Check], *, as_json: bool) -> None:
    """Print one line a check, or one JSON object."""
    failed = sum(each.status == "failed" for each in checks)
    if as_json:
        found = [{"name": e.name, "status": e.status, "detail": e.detail} for e in checks]
        click.echo(json.dumps({"function": spec, "ok": not failed, "checks": found}))
        return
    width = max(len(each.name) for each in checks)
    for each in checks:
        click.echo(f"{each.status:<7} {each.name:<{width}}  {_printable(each.detail)}")
    click.echo(f"{spec}: {f'{failed} checks failed' if failed else 'ready'}")


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\n", " ")


def _json_object(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{option}: a JSON object is needed, got {text[:60]!r}")
    return found


def _read(rows: BinaryIO | None, most: int) -> list[Trajectory]:
    found = []
    for rollout in itertools.islice(read_rollouts(rows), most) if rows else ():
        if rollout.trajectory is None:
            raise click.UsageError(f"--rows: {rollout.error}")
        found.append(rollout.trajectory)
    return found
