"""`rewardpool metrics`: the pool as Prometheus metrics."""

from __future__ import annotations

import click
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import generate_latest

from worker.ops.address import connect, redis_address
from worker.ops.metrics import PoolCollector
from worker.ops.options import config_option, redis_option
from worker.ops.serving import serve


@click.command(name="metrics")
@redis_option
@config_option
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=9182, show_default=True, help="0 takes a free one.")
@click.option("--once", is_flag=True, help="Print the metrics and end.")
def command(redis_url: str | None, config: str | None, bind: str, port: int, once: bool) -> None:
    """Serve metrics of queues, workers, outcomes and limits for Prometheus.

    One process for the whole pool: it reads Redis when it is scraped.
    """
    connection = connect(redis_address(redis_url, config))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PoolCollector(connection))
    if once:
        click.echo(generate_latest(registry), nl=False)
        return
    serve(make_wsgi_app(registry), bind=bind, port=port, what="metrics")
