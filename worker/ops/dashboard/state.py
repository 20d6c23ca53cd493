"""What one dashboard application holds; reached from a request by `state()`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import redis
from flask import current_app

from worker.ops.dashboard.access import Access
from worker.ops.limit_state import LimitReader

KEY = "rewardpool"


@dataclass(frozen=True)
class State:
    """The connection all requests share (redis-py's pool is thread-safe), and the doors."""

    connection: redis.Redis
    shown_url: str
    access: Access
    limits: LimitReader


def state() -> State:
    """Return the state of the application that serves this request."""
    found: State = current_app.extensions[KEY]
    return found


def without_secrets(url: str) -> str:
    """Return a Redis URL without user, password and query: what a page may show."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "redis"
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path, "", ""))
