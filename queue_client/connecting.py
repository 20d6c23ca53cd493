"""Connections to Redis: explicit timeouts, no silent resending, bounded replies."""

from __future__ import annotations

import socket
import time
from typing import Any, cast
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, ConnectionPool
from redis.retry import Retry

from queue_client.errors import PoolUnavailable
from queue_client.options import Options

SOCKET_TIMEOUT_S = 10.0
BLOCK_S = 2.0  # a blocking read asks for less than the socket waits
MAX_REPLY_BYTES = 32 * 1024 * 1024
LEAST_VERSION = (6, 2)


class ReplyTooLarge(redis.RedisError):
    """One reply exceeds MAX_REPLY_BYTES; the connection is dropped, the caller asks for less.

    No ConnectionError: redis-py would read it once more.
    """


class _Metered:
    """A socket that refuses to receive more than MAX_REPLY_BYTES between two sends."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._socket = wrapped
        self._received = 0

    def sendall(self, data: bytes, *args: Any) -> None:
        self._received = 0
        self._socket.sendall(data, *args)

    def recv(self, *args: Any) -> bytes:
        data = self._socket.recv(*args)
        self._count(len(data))
        return data

    def recv_into(self, *args: Any) -> int:
        size = self._socket.recv_into(*args)
        self._count(size)
        return size

    def _count(self, size: int) -> None:
        self._received += size
        if self._received > MAX_REPLY_BYTES:
            raise ReplyTooLarge(f"a reply exceeds {MAX_REPLY_BYTES} bytes")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class _Bounded(AbstractConnection):
    """Mixed in before a redis-py connection class: its socket is metered."""

    def _connect(self) -> Any:
        connect: Any = super()._connect  # type: ignore[safe-super]
        return _Metered(connect())


def open_connection(
    options: Options, *, role: str, socket_timeout_s: float = SOCKET_TIMEOUT_S
) -> redis.Redis:
    """Return a client for one thread, which holds one connection; connects at its first command.

    redis-py's own retries are off: it would send a command again without our knowing.
    """
    settings: dict[str, Any] = {
        "client_name": f"rewardpool-{role}",
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": options.connect_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if options.connect is not None:
        client = options.connect(**settings)
    else:
        client = redis.Redis(connection_pool=ConnectionPool.from_url(options.url, **settings))
    bound_replies(client)
    return client


def bound_replies(client: redis.Redis) -> None:
    """What a URL or a caller's factory must not undo: bytes stay bytes, replies stay bounded.

    To be called before the client connects.
    """
    pool = client.connection_pool
    pool.connection_kwargs["decode_responses"] = False
    known = cast("type[AbstractConnection]", pool.connection_class)
    if not issubclass(known, _Bounded):
        pool.connection_class = cast(Any, type(f"Bounded{known.__name__}", (_Bounded, known), {}))


def disconnect(client: redis.Redis) -> None:
    """Close its connection; a client made from a pool leaves that to its maker."""
    client.close()
    client.connection_pool.disconnect()


def block_ms(client: redis.Redis) -> int:
    """Return how long a blocking read may ask for: well below the socket's own timeout."""
    timeout_s = client.connection_pool.connection_kwargs.get("socket_timeout") or BLOCK_S * 2
    return max(1, int(min(BLOCK_S, timeout_s / 2) * 1000))


def check_reachable(options: Options) -> None:
    """Connect once, with the connect timeout for every step. Raises PoolUnavailable."""
    client = open_connection(options, role="greet", socket_timeout_s=options.connect_timeout_s)
    try:
        greet(client, options)
    finally:
        disconnect(client)


def greet(client: redis.Redis, options: Options) -> RedisClock:
    """Check the server's version and return its clock. Raises PoolUnavailable."""
    try:
        clock = RedisClock.measured(client)
        version = _version(client)
    except (redis.RedisError, OSError) as error:
        raise unavailable(error, options.url) from error
    if version is not None and version < LEAST_VERSION:
        found = ".".join(map(str, version))
        raise PoolUnavailable(
            f"{masked(options.url)}: Redis >= 6.2 or Valkey needed, {found} found"
        )
    return clock


def _version(client: redis.Redis) -> tuple[int, ...] | None:
    """The server's version, or None where an ACL hides it."""
    try:
        facts = client.info("server")
    except redis.exceptions.NoPermissionError:
        return None
    digits = str(facts.get("redis_version", "")).split(".")[:2]
    return tuple(int(part) for part in digits) if all(map(str.isdigit, digits)) else None


def unavailable(error: BaseException, url: str) -> PoolUnavailable:
    """Say where Redis was expected and what went wrong, without its password."""
    return PoolUnavailable(f"{masked(url)}: {type(error).__name__}: {error}")


def masked(url: str) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(url)
    where = parts.hostname or ""
    if parts.port:
        where += f":{parts.port}"
    return f"{parts.scheme}://{where}{parts.path}"


class RedisClock:
    """Redis' clock, from here: an offset to this process' monotonic clock."""

    def __init__(self, offset_ms: float) -> None:
        self._offset_ms = offset_ms

    @classmethod
    def measured(cls, client: redis.Redis) -> RedisClock:
        """Ask once; half of the round trip is the error."""
        before = time.monotonic()
        seconds, micros = client.time()
        middle = (before + time.monotonic()) / 2
        return cls(seconds * 1000 + micros / 1000 - middle * 1000)

    def ms(self, monotonic_s: float | None = None) -> int:
        """Redis' time at an instant of the monotonic clock (now if None), ms."""
        instant = time.monotonic() if monotonic_s is None else monotonic_s
        return int(instant * 1000 + self._offset_ms)
