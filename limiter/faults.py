"""Which faults of Redis pass by themselves, and in what words they reach the caller."""

from __future__ import annotations

import redis

#: Redis answers, but will not serve us now; another try may find it better.
_PASSING_TYPES = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    OSError,
)
_PASSING = (
    "OOM",
    "LOADING",
    "READONLY",
    "MISCONF",
    "BUSY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "UNBLOCKED",
    "max number of clients",
)


def passes(error: BaseException) -> bool:
    """Whether to try again: Redis cannot be reached, or refuses for now."""
    if isinstance(error, _PASSING_TYPES):
        return True
    return isinstance(error, redis.RedisError) and any(word in str(error) for word in _PASSING)


def reason(error: BaseException) -> str:
    """Return one line for people; never the URL, which may hold a password."""
    words = str(error).splitlines()
    return f"{type(error).__name__}: {words[0][:200]}" if words else type(error).__name__
