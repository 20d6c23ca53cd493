"""Which Redis a command talks to, and how patiently."""

from __future__ import annotations

import click
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from queue_client.connecting import bound_replies
from worker.settings import SettingsError, load_settings

TIMEOUT_S = 5.0


def connect(url: str) -> redis.Redis:
    """Return a client for pages and scrapes: it tries twice and says so within seconds.

    redis-py's own ten tries with pauses would hold a page for a minute when Redis is away.
    """
    client = redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S / 2,
        retry=Retry(NoBackoff(), 1),
    )
    bound_replies(client)  # whoever writes to Redis does not fill our memory
    return client


def redis_address(redis_url: str | None, config: str | None) -> str:
    """Return the URL given, or the settings' one; wrong settings end the command."""
    if redis_url:
        return redis_url
    try:
        return load_settings(config).redis.url
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
