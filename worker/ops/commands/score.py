"""`rewardpool score FILE.jsonl`: anybody's rollouts to rewards."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from queue_client import PoolUnavailable, RewardClient
from queue_client.protocol import DEFAULT_QUEUE
from worker.ops.embedded import NoServer
from worker.ops.local_pool import LocalPool, PoolFailed, PoolMisconfigured
from worker.ops.options import config_option, json_option, parse_limits, redis_option
from worker.ops.score_run import Progress as Counts
from worker.ops.score_run import ScoreRun
from worker.ops.summary import Summary, show_summary
from worker.settings import FILE, SettingsError, load_settings, settings_from

INTERRUPTED = 130


@click.command(name="score")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--reward", "function", metavar="SPEC", help="builtin:NAME, file.py:name or mod:name."
)
@click.option(
    "--limits", "limit_specs", multiple=True, metavar="NAME:KEY=N,…", help="A limit; repeatable."
)
@click.option("--limit", metavar="NAME", help="Each row takes a lease of this limit.")
@click.option("--workers", type=click.IntRange(0), help="Worker processes to start here.")
@click.option("--queue", help="Queue of a running pool (with --redis).")
@click.option("--out", type=click.Path(dir_okay=False), help="Result file; else standard output.")
@click.option("--timeout-s", type=float, default=300.0, show_default=True, help="For each row.")
@click.option("--tokenizer", metavar="PATH", help="Decodes ids where a row has no text.")
@redis_option
@config_option
@json_option
def command(
    file: Any,
    function: str | None,
    limit_specs: tuple[str, ...],
    limit: str | None,
    workers: int | None,
    queue: str | None,
    out: str | None,
    timeout_s: float,
    tokenizer: str | None,
    redis_url: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Score every line of a rollout FILE (JSON Lines; - reads standard input).

    Writes one result line for each input line, in order. Without --redis, an embedded server and
    two workers are started for the run. Exit code 1 if some rows failed.
    """
    try:
        tree = _settings_tree(function, parse_limits(limit_specs), limit, tokenizer)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    own = bool(tree) or not redis_url
    count = workers if workers is not None else (2 if own else 0)
    if count == 0 and own:
        raise click.UsageError("--workers 0 needs --redis of a running pool, and settings there")
    pool = LocalPool(
        workers=count,
        settings=tree,
        config=config,
        redis_url=redis_url,
        queue=queue or (f"score-{secrets.token_hex(4)}" if count else DEFAULT_QUEUE),
    )
    try:
        routed = load_settings(environ=pool.environment()).reward.function is None
        if count and config is None and Path(FILE).is_file():
            click.echo(f"using the settings in ./{FILE}", err=True)
        with _output(out) as target:
            summary = run(pool, file, target, timeout_s=timeout_s, maths_by_default=routed)
    except (SettingsError, PoolMisconfigured) as error:
        raise click.UsageError(str(error)) from None
    except (NoServer, PoolFailed, PoolUnavailable) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted: the results so far are written", err=True)
        sys.exit(INTERRUPTED)
    _report(summary, as_json=as_json, to_stderr=out is None)
    sys.exit(1 if summary.failed else 0)


def run(
    pool: LocalPool, file: Any, out: TextIO, *, timeout_s: float, maths_by_default: bool
) -> Summary:
    """Start the pool, score the file, stop the pool; progress goes to a terminal's stderr."""
    console = Console(stderr=True)
    with pool, RewardClient(pool.url, queue=pool.queue) as client, _progress(console) as progress:
        started = time.monotonic()
        scoring = ScoreRun(
            client, out, timeout_s=timeout_s, maths_by_default=maths_by_default, on_tick=progress
        )
        try:
            summary = scoring.run(file)
        except KeyboardInterrupt:
            scoring.cancel()
            raise
        summary.elapsed_s = time.monotonic() - started
        return summary


def _settings_tree(
    function: str | None,
    limits: dict[str, dict[str, Any]],
    limit: str | None,
    tokenizer: str | None,
) -> dict[str, dict[str, Any]]:
    reward = {"function": function, "limit": limit, "tokenizer": tokenizer}
    given: dict[str, Any] = {key: value for key, value in reward.items() if value is not None}
    if limit is not None:
        given["manager"] = "rate_limited"
    tree: dict[str, dict[str, Any]] = {}
    if given:
        tree["reward"] = given
    if limits:
        tree["limits"] = limits
    if tree:
        settings_from(tree, where="command line")
    return tree


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    with open(path, "w", encoding="utf-8") as file:
        yield file


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Any]:
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("scored"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    facts = TextColumn("{task.fields[facts]}")
    with Progress(*columns, facts, console=console, transient=True) as bar:
        task = bar.add_task("score", total=None, facts="")
        started = time.monotonic()

        def show(counts: Counts) -> None:
            rate = counts.done / max(time.monotonic() - started, 1e-3)
            mean = "-" if counts.mean is None else f"{counts.mean:.3f}"
            facts = f"{rate:,.0f}/s  failed {counts.failed:,}  mean reward {mean}"
            bar.update(task, completed=counts.done, facts=facts)

        yield show


def _report(summary: Summary, *, as_json: bool, to_stderr: bool) -> None:
    if as_json:
        click.echo(json.dumps(summary.as_json(), indent=2), err=to_stderr)
        return
    console = Console(stderr=to_stderr)
    console.print(
        f"{summary.rows:,} rows in {summary.elapsed_s:.1f} s, {summary.failed:,} failed",
        style="bold",
    )
    show_summary(summary, console)
