"""Changing limits and reading them all, without declaring any: for command lines and dashboards."""

from __future__ import annotations

import dataclasses
import difflib
import getpass
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from redis.asyncio import Redis as AsyncRedis

from limiter import faults, replies, scripts
from limiter.errors import BadLimits, LimiterUnavailable, UnknownLimit
from limiter.keys import SETTINGS_PATTERN, Keys, name_of
from limiter.limits import Limits
from limiter.usage import Minute, Usage, read_history, read_usage

SCAN_COUNT = 2000
TIMEOUT_S = 10.0
NOBODY = "-"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of settings: how (declare, set, reset), by whom, on top of which revision."""

    how: str
    by: str
    revision: int
    limits: Limits

    def args(self) -> tuple[str | int, ...]:
        """Return the arguments of limit_configure.lua, but for the owner."""
        by = " ".join(self.by.split()) or "unknown"
        return (self.how, by, self.revision, *self.limits.to_wire())


def changed_limits(limits: Limits, changes: Mapping[str, Any]) -> Limits:
    """Return limits with some fields changed. Raises BadLimits for a field that does not exist."""
    for field in changes:
        if field not in Limits.field_names():
            near = difflib.get_close_matches(field, Limits.field_names(), n=1)
            raise BadLimits(
                f"{field}: unknown field" + (f", did you mean {near[0]!r}?" if near else "")
            )
    return dataclasses.replace(limits, **changes)


def checked_code(name: str, code: int) -> bool:
    """Whether a configure came through; false when others changed the settings meanwhile."""
    if code == -2:
        raise UnknownLimit(
            f"{name}: no program has declared this limit, so there is nothing to reset to"
        )
    return code >= 0


def overview(url: str) -> list[Usage]:
    """Return how every limit on this server stands, by name; reads, never writes."""
    with _client(url) as client:
        names = sorted({name_of(replies.text(key)) for key in _settings_keys(client)})
        return [usage for name in names if (usage := _usage(client, name)) is not None]


def usage_of(url: str, name: str) -> Usage:
    """Return how one limit stands. Raises UnknownLimit."""
    with _client(url) as client:
        return _known(name, _usage(client, name))


def history_of(url: str, name: str) -> list[Minute]:
    """Return what happened under one limit in each minute of the last hour. Raises UnknownLimit."""
    with _client(url) as client:
        usage = _known(name, _usage(client, name))
        return read_history(client.hgetall(Keys.of(name).history), usage)


def set_limits(url: str, name: str, *, by: str, **changes: Any) -> Usage:
    """Change a known limit's settings, as an operator. Raises UnknownLimit or BadLimits."""
    with _client(url) as client:
        while True:
            usage = _known(name, _usage(client, name))
            wanted = changed_limits(usage.limits, changes)
            reply = _run(
                client, name, "configure", *Change("set", by, usage.revision, wanted).args(), NOBODY
            )
            if checked_code(name, int(reply[0])):
                return _known(name, _usage(client, name))


def declare_limits(url: str, limits: Limits, *, by: str) -> Usage:
    """Write a limit as a program would that declares it; changes nothing if it did already."""
    with _client(url) as client:
        change = Change("declare", by, -1, limits)
        _run(client, limits.name, "configure", *change.args(), NOBODY)
        return _known(limits.name, _usage(client, limits.name))


def reset_limits(url: str, name: str, *, by: str) -> Usage:
    """Go back to the settings last declared by a program. Raises UnknownLimit."""
    with _client(url) as client:
        usage = _known(name, _usage(client, name))
        reply = _run(
            client, name, "configure", *Change("reset", by, -1, usage.limits).args(), NOBODY
        )
        checked_code(name, int(reply[0]))
        return _known(name, _usage(client, name))


def resume_limit(url: str, name: str) -> float:
    """Lift a pause; returns the seconds that were left of it. Raises UnknownLimit."""
    with _client(url) as client:
        _known(name, _usage(client, name))
        return replies.read_code(_run(client, name, "resume", NOBODY))[0] / 1000


async def overview_async(url: str) -> list[Usage]:
    """Return how every limit on this server stands, by name, for asyncio."""
    client = AsyncRedis.from_url(url, socket_timeout=TIMEOUT_S)
    try:
        found = [key async for key in client.scan_iter(match=SETTINGS_PATTERN, count=SCAN_COUNT)]
        usages = []
        for name in sorted({name_of(replies.text(key)) for key in found}):
            script, keys = scripts.load("usage"), Keys.of(name).all
            reply = await client.eval(script.text, len(keys), *keys)
            if not replies.lacks_settings(reply):
                usages.append(read_usage(name, reply))
        return usages
    except redis.RedisError as error:
        raise LimiterUnavailable("limits", faults.reason(error)) from error
    finally:
        await client.aclose()


@contextmanager
def _client(url: str) -> Iterator[Any]:
    try:
        with redis.Redis.from_url(url, socket_timeout=TIMEOUT_S) as client:
            yield client
    except redis.RedisError as error:
        raise LimiterUnavailable("limits", faults.reason(error)) from error


def _settings_keys(client: Any) -> Iterator[Any]:
    yield from client.scan_iter(match=SETTINGS_PATTERN, count=SCAN_COUNT)


def _run(client: Any, name: str, verb: str, *args: str | int) -> Any:
    script, keys = scripts.load(verb), Keys.of(name).all
    try:
        return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
    except redis.exceptions.NoScriptError:
        return client.execute_command("EVAL", script.text, len(keys), *keys, *args)


def _usage(client: Any, name: str) -> Usage | None:
    reply = _run(client, name, "usage")
    return None if replies.lacks_settings(reply) else read_usage(name, reply)


def _known(name: str, usage: Usage | None) -> Usage:
    if usage is None:
        raise UnknownLimit(f"{name}: there is no limit of that name")
    return usage


def operator() -> str:
    """Return who changes settings from a command line: user and host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = f"uid{os.getuid()}"
    return f"{user}@{os.uname().nodename}"
