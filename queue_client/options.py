"""The client's settings: one frozen object, checked where it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import redis

from queue_client.protocol import DEFAULT_QUEUE, MAX_ROWS

WhenFull = Literal["wait", "raise"]
NoWorkerPolicy = Literal["wait", "raise"]
Connect = Callable[..., redis.Redis]

SCHEMES = ("redis", "rediss", "unix")
CHECK_EVERY_S = 5.0  # how often a call without news is looked up in Redis
NO_WORKER_AFTER_S = 5.0
DEADLINE_GRACE_S = 2.0  # the pool reports a timeout itself; the client waits this long for it


@dataclass(frozen=True, slots=True)
class Options:
    """What `RewardClient` was told; nonsense is refused with the name and the value.

    `gather_s` bounds how long concurrent small submits are gathered into one job. `outage_s` is how
    long a lost connection is borne before what is in flight ends with PoolUnavailable.
    """

    url: str = field(repr=False)
    queue: str = DEFAULT_QUEUE
    rows_per_job: int = 32
    max_in_flight: int = 100_000
    when_full: WhenFull = "wait"
    no_worker: NoWorkerPolicy = "wait"
    gather_s: float = 0.005
    connect_timeout_s: float = 5.0
    outage_s: float = 300.0
    connect: Connect | None = None

    def __post_init__(self) -> None:
        _check_url(self.url)
        check_queue(self.queue)
        _check(
            _whole(self.rows_per_job) and 1 <= self.rows_per_job <= MAX_ROWS,
            "rows_per_job",
            f"a whole number 1..{MAX_ROWS}",
            self.rows_per_job,
        )
        _check(
            _whole(self.max_in_flight) and self.max_in_flight >= 1,
            "max_in_flight",
            "a whole number >= 1",
            self.max_in_flight,
        )
        for name, allowed in (("when_full", WhenFull), ("no_worker", NoWorkerPolicy)):
            value = getattr(self, name)
            _check(value in get_args(allowed), name, " | ".join(get_args(allowed)), value)
        _check(
            _number(self.gather_s) and 0 <= self.gather_s <= 1,
            "gather_s",
            "0..1 seconds",
            self.gather_s,
        )
        for name in ("connect_timeout_s", "outage_s"):
            value = getattr(self, name)
            _check(_number(value) and value > 0, name, "seconds > 0", value)


def _check_url(url: Any) -> None:
    """The URL itself is not repeated: it may hold a password."""
    known = isinstance(url, str) and url.partition("://")[0] in SCHEMES and "://" in url
    _check(known, "url", " or ".join(f"{scheme}://…" for scheme in SCHEMES), _Hidden(url))


class _Hidden:
    def __init__(self, url: Any) -> None:
        self._url = url

    def __repr__(self) -> str:
        if not isinstance(self._url, str):
            return repr(self._url)
        scheme, found, _ = self._url.partition("://")
        return f"{scheme}://…" if found else "a text without a scheme"


def check_queue(queue: Any) -> None:
    """Raise ValueError unless the text can name a queue on a command line and in a key."""
    good = isinstance(queue, str) and queue == queue.strip() and 0 < len(queue) <= 200
    _check(good and queue.isprintable(), "queue", "1 to 200 printable characters", queue)


def check_timeout(timeout_s: Any) -> None:
    """Raise ValueError unless it is None or a number of seconds > 0."""
    good = timeout_s is None or (_number(timeout_s) and timeout_s > 0)
    _check(good, "timeout_s", "None or seconds > 0", timeout_s)


def _check(holds: bool, name: str, expected: str, value: Any) -> None:
    if not holds:
        raise ValueError(f"{name}: {expected} expected (got {value!r})")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
