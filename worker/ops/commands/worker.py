"""`rewardpool worker QUEUE…`: the documented `rq worker` line, with the settings checked first."""

from __future__ import annotations

import os

import click

from queue_client.protocol import DEFAULT_QUEUE
from worker.ops.options import config_option, redis_option
from worker.settings import SettingsError, load_settings


@click.command(name="worker", context_settings={"ignore_unknown_options": True})
@click.argument("queues", nargs=-1, metavar="[QUEUE]... [-- RQ_OPTION...]")
@redis_option
@config_option
@click.option("--burst", is_flag=True, help="End when every queue is empty.")
@click.option("--name", help="The worker's name; by default host, process and a random part.")
@click.option("--with-scheduler", is_flag=True, help="Also run RQ's scheduler, as its own process.")
@click.option("--dry-run", is_flag=True, help="Print the `rq worker` line and end.")
def command(
    queues: tuple[str, ...],
    redis_url: str | None,
    config: str | None,
    burst: bool,
    name: str | None,
    with_scheduler: bool,
    dry_run: bool,
) -> None:
    """Take jobs from QUEUEs, the most important first, and score them until told to stop.

    SIGTERM finishes what is in flight (for `worker.stop_s` at most), a second one puts it back.
    Further options go to `rq worker` as they are.
    """
    if config:
        os.environ["REWARDPOOL_CONFIG"] = os.path.abspath(config)
    try:
        settings = load_settings(config)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    url = redis_url or settings.redis.url
    line = worker_line(queues or (DEFAULT_QUEUE,), burst=burst, name=name,
                       with_scheduler=with_scheduler)  # fmt: skip
    if dry_run:
        click.echo(f"rq {' '.join(line)}  # RQ_REDIS_URL says where Redis is")
        return
    os.environ["REWARDPOOL_REDIS__URL"] = url
    os.environ["RQ_REDIS_URL"] = url  # not on the command line: it may hold a password
    from rq.cli import main as rq

    rq.main(args=line, prog_name="rq")


def worker_line(
    queues: tuple[str, ...], *, burst: bool = False, name: str | None = None,
    with_scheduler: bool = False,
) -> list[str]:  # fmt: skip
    """Return the arguments of `rq` that start one of our workers."""
    flags = ["--burst"] if burst else []
    flags += ["--name", name] if name else []
    flags += ["--with-scheduler"] if with_scheduler else []
    return [
        *("worker", "-w", "worker.PoolWorker", "-j", "worker.PoolJob"),
        *("-S", "queue_client.wire.Serializer", *flags, *queues),
    ]
