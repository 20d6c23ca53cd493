"""The pool's Lua scripts: one round trip a batch of calls, whatever the server has forgotten."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry
from rq.connections import parse_connection

Argument = str | bytes | int | float
Call = tuple["Script", Sequence[str], Sequence[Argument]]


class Script:
    """One file of `lua/`; its header is its contract."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = resources.files("lua").joinpath(f"{name}.lua").read_text(encoding="utf-8")
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(
        self, connection: redis.Redis, keys: Sequence[str], args: Sequence[Argument]
    ) -> Any:
        """Run it once; loads it where the server does not know it."""
        try:
            return connection.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return connection.eval(self.text, len(keys), *keys, *args)


def run_all(connection: redis.Redis, calls: Sequence[Call]) -> list[Any]:
    """Run calls in one round trip, each atomic by itself; an error stands in its place."""
    with connection.pipeline(transaction=False) as pipeline:
        for script, keys, args in calls:
            pipeline.evalsha(script.sha, len(keys), *keys, *args)
        answers = pipeline.execute(raise_on_error=False)
        forgotten = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if not forgotten:
            return answers
        for i in forgotten:
            script, keys, args = calls[i]
            pipeline.eval(script.text, len(keys), *keys, *args)
        for i, answer in zip(forgotten, pipeline.execute(raise_on_error=False), strict=True):
            answers[i] = answer
    return answers


def own_connection(connection: redis.Redis, *, socket_timeout_s: float) -> redis.Redis:
    """Return a connection pool of one's own to the same server, for one thread.

    It sends nothing twice by itself: our callers know what may be repeated.
    """
    client_class, connection_class, kwargs = parse_connection(connection)
    kwargs.pop("retry_on_timeout", None)
    kwargs |= {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": min(5.0, socket_timeout_s),
        "health_check_interval": 0,
        "decode_responses": False,
    }
    pool = redis.ConnectionPool(connection_class=connection_class, **kwargs)
    own: redis.Redis = client_class(connection_pool=pool)
    return own
