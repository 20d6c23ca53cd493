"""Which Redis a command talks to."""

from __future__ import annotations

import click

from worker.settings import SettingsError, load_settings


def redis_address(redis_url: str | None, config: str | None) -> str:
    """Return the URL given, or the settings' one; wrong settings end the command."""
    if redis_url:
        return redis_url
    try:
        return load_settings(config).redis.url
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
