"""What a reward function may raise to say why a row has no reward.

RewardFailure                 kind = scorer_error
├── RateLimited               upstream_rate_limited   a 429: slows the whole pool once
├── UpstreamError             upstream_error          a judge or reward model failed
├── Unparseable               unparseable             a verdict that cannot be read
├── SandboxFailure            sandbox_error           the sandbox, not the program, failed
├── BadInput                  bad_input               the row itself cannot be scored
└── ScoreTimeout              timeout                 the row's own time ran out

Anything else that is raised is a `scorer_error`. A wrong answer is a score, never an exception.
"""

from __future__ import annotations

from queue_client.outcome import Kind


class RewardFailure(Exception):
    """The root; `kind` is the outcome's kind, `retryable` whether another try may mend it."""

    kind = Kind.SCORER_ERROR
    retryable = False


class RateLimited(RewardFailure):
    """The upstream answered 429; the limit is paused for `retry_after_s` for every process."""

    kind = Kind.UPSTREAM_RATE_LIMITED
    retryable = True

    def __init__(
        self, retry_after_s: float = 1.0, message: str = "", *, limit: str | None = None
    ) -> None:
        super().__init__(message or f"rate limited, retry after {retry_after_s:g} s")
        self.retry_after_s, self.limit = retry_after_s, limit

    def __reduce__(self) -> tuple[object, ...]:
        return (_rate_limited, (self.retry_after_s, str(self), self.limit))


def _rate_limited(retry_after_s: float, message: str, limit: str | None) -> RateLimited:
    return RateLimited(retry_after_s, message, limit=limit)


class UpstreamError(RewardFailure):
    """A judge, reward model or other service failed; `retryable=False` for its 4xx."""

    kind = Kind.UPSTREAM_ERROR
    retryable = True

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class Unparseable(RewardFailure):
    """The judge answered, but no verdict can be read from it: never a pass."""

    kind = Kind.UNPARSEABLE


class SandboxFailure(RewardFailure):
    """The sandbox failed; the program was not judged."""

    kind = Kind.SANDBOX_ERROR
    retryable = True


class BadInput(RewardFailure):
    """The row cannot be scored: says which field is missing or wrong."""

    kind = Kind.BAD_INPUT


class ScoreTimeout(RewardFailure):
    """Scoring this row ran out of its own time."""

    kind = Kind.TIMEOUT
    retryable = True
