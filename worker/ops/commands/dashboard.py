"""`rewardpool dashboard`: rq-dashboard with a Limits page, safe to open."""

from __future__ import annotations

import os
from pathlib import Path

import click

from worker.ops.address import redis_address
from worker.ops.dashboard.access import LOOPBACK, Access
from worker.ops.dashboard.app import create_app
from worker.ops.options import config_option, redis_option
from worker.ops.serving import is_loopback, serve

PASSWORD = "REWARDPOOL_DASHBOARD_PASSWORD"  # noqa: S105 - the variable's name


@click.command(name="dashboard")
@redis_option
@config_option
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=9181, show_default=True, help="0 takes a free one.")
@click.option("--url-prefix", default="", help="Path in front of every page, e.g. /pool.")
@click.option("--user", help=f"Ask for this user and the password in {PASSWORD}.")
@click.option(
    "--password-file", type=click.Path(exists=True, dir_okay=False), help="Password; first line."
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    help="Name under which browsers reach it; repeatable.",
)
@click.option("--read-only", is_flag=True, help="Nobody may requeue jobs.")
@click.option("--allow-delete", is_flag=True, help="Show buttons that delete jobs and empty lists.")
def command(
    redis_url: str | None,
    config: str | None,
    bind: str,
    port: int,
    url_prefix: str,
    user: str | None,
    password_file: str | None,
    host_names: tuple[str, ...],
    read_only: bool,
    allow_delete: bool,
) -> None:
    """Serve queues, jobs, workers and limits as web pages.

    Listens on this machine only. Any other address needs --user: whoever can open the pages sees
    what judges and programs wrote, and may requeue jobs, which costs calls.
    """
    if read_only and allow_delete:
        raise click.UsageError("--read-only and --allow-delete exclude each other")
    password = _password(user, password_file)
    if user is None and not is_loopback(bind):
        raise click.UsageError(f"--bind {bind} needs --user and a password ({PASSWORD})")
    if url_prefix and (not url_prefix.startswith("/") or url_prefix.endswith("/")):
        raise click.UsageError(f"--url-prefix: like /pool (got {url_prefix!r})")
    access = Access(
        user=user,
        password=password,
        hosts=_hosts(bind, host_names),
        requeue=not read_only,
        delete=allow_delete,
    )
    app = create_app(redis_address(redis_url, config), access=access, url_prefix=url_prefix)
    serve(app, bind=bind, port=port, what="dashboard")


def _password(user: str | None, password_file: str | None) -> str | None:
    """Never from an argument: every user of the machine can read those."""
    given = os.environ.get(PASSWORD)
    if password_file:
        lines = Path(password_file).read_text(encoding="utf-8").splitlines()
        given = lines[0] if lines else ""
    if user is not None and not given:
        raise click.UsageError(f"--user needs a password: {PASSWORD} or --password-file")
    if user is None and password_file:
        raise click.UsageError("--password-file needs --user")
    return given


def _hosts(bind: str, host_names: tuple[str, ...]) -> frozenset[str]:
    """Host headers that are answered: any, where other machines reach us and nobody named one."""
    if not host_names and not is_loopback(bind):
        return frozenset()
    return LOOPBACK | frozenset(name.lower() for name in host_names) | {bind}
