"""Turning whatever went wrong with a row into one failure with a kind.

RewardFailure (worker.rewards.errors)
├── BadScore        bad_score       what was returned cannot be a reward
├── ScorerError     scorer_error    raised something else, exited, crashed, ate its memory
├── LimitTimeout    limit_timeout   its time ran out while it waited for a limit
├── OverLimit       over_limit      costs more than its limit can ever admit
└── Cancelled       cancelled       nobody wants it any more
"""

from __future__ import annotations

import asyncio
from typing import Any

from queue_client.outcome import Kind, Outcome
from worker.rewards.errors import (
    BadInput,
    RateLimited,
    RewardFailure,
    SandboxFailure,
    ScoreTimeout,
    Unparseable,
    UpstreamError,
)

MAX_MESSAGE = 2000


class ScorerError(RewardFailure):
    """The reward function raised, exited, crashed or ate its memory; mend the function."""

    kind = Kind.SCORER_ERROR


class LimitTimeout(RewardFailure):
    """No lease in time: raise the limit, or the time rows may wait for it."""

    kind = Kind.LIMIT_TIMEOUT
    retryable = True


class OverLimit(RewardFailure):
    """One call costs more than its limit ever admits: raise the limit or shorten the row."""

    kind = Kind.OVER_LIMIT


class Cancelled(RewardFailure):
    """The producer cancelled the row."""

    kind = Kind.CANCELLED


#: The limiter's errors by name: helpers need not import it to tell them.
_LIMITER: dict[str, type[RewardFailure]] = {
    "AcquireTimeout": LimitTimeout,
    "CostExceedsCapacity": OverLimit,
    "LeaseLost": LimitTimeout,
    "LimiterUnavailable": LimitTimeout,
}


def failure_of(error: BaseException) -> RewardFailure:
    """Return the failure that an exception stands for.

    >>> failure_of(ValueError("no number")).kind
    <Kind.SCORER_ERROR: 'scorer_error'>
    """
    if isinstance(error, RewardFailure):
        return error
    if type(error).__module__.partition(".")[0] == "limiter":
        for base in type(error).__mro__:
            if base.__name__ in _LIMITER:
                return _LIMITER[base.__name__](cut(str(error)))
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return ScoreTimeout(cut(f"the reward function raised {shown(error)}"))
    return ScorerError(cut(shown(error)))


def shown(error: BaseException) -> str:
    """`Type: message` on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # a __str__ that raises is a fault of the function, not of the pool
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cut(text: str) -> str:
    """At most MAX_MESSAGE characters."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


_BY_KIND: dict[str, type[RewardFailure]] = {
    each.kind.value: each
    for each in (
        SandboxFailure, Unparseable, BadInput, ScoreTimeout, ScorerError, LimitTimeout, OverLimit,
    )
}  # fmt: skip


def rebuilt(reply: dict[str, Any]) -> RewardFailure:
    """The failure a helper process described."""
    kind, message = reply["kind"], str(reply["error"])
    if kind == Kind.UPSTREAM_RATE_LIMITED.value:
        return RateLimited(reply.get("retry_after_s", 1.0), message, limit=reply.get("limit"))
    if kind == Kind.UPSTREAM_ERROR.value:
        return UpstreamError(message, retryable=reply["retryable"])
    failure = _BY_KIND.get(kind, RewardFailure)(message)
    failure.kind, failure.retryable = Kind(kind), reply["retryable"]
    return failure


def failed(failure: RewardFailure, **facts: Any) -> Outcome:
    """The outcome of a failure."""
    return Outcome.failed(
        Kind(failure.kind), cut(str(failure)), retryable=failure.retryable, **facts
    )
