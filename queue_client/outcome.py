"""What scoring a trajectory came to: scored, or failed with a kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Kind(StrEnum):
    """Why a trajectory has no reward. A wrong answer is a reward, not a failure."""

    TIMEOUT = "timeout"
    LIMIT_TIMEOUT = "limit_timeout"
    OVER_LIMIT = "over_limit"
    SCORER_ERROR = "scorer_error"
    BAD_SCORE = "bad_score"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_RATE_LIMITED = "upstream_rate_limited"
    UNPARSEABLE = "unparseable"
    SANDBOX_ERROR = "sandbox_error"
    WORKER_LOST = "worker_lost"
    BAD_INPUT = "bad_input"
    CANCELLED = "cancelled"


#: Kinds that a later try may well mend: nothing in the row itself is at fault.
RETRYABLE = frozenset(
    {
        Kind.TIMEOUT,
        Kind.LIMIT_TIMEOUT,
        Kind.UPSTREAM_ERROR,
        Kind.UPSTREAM_RATE_LIMITED,
        Kind.SANDBOX_ERROR,
        Kind.WORKER_LOST,
    }
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One trajectory's outcome; every field is always there.

    `wait_s` is time in the queue and for limits, `run_s` time inside the reward function, seconds.
    `extra` holds plain Python values only. `reward` is None exactly when `status` is "failed",
    or when the reward function skipped the row by returning None.
    """

    status: Literal["scored", "failed"]
    reward: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    kind: Kind | None = None
    message: str = ""
    retryable: bool = False
    attempts: int = 1
    wait_s: float = 0.0
    run_s: float = 0.0
    uid: str | None = None

    @classmethod
    def scored(
        cls, reward: float | None, extra: dict[str, Any] | None = None, **facts: Any
    ) -> Outcome:
        """A reward and what the reward function said beside it."""
        return cls(status="scored", reward=reward, extra=extra or {}, **facts)

    @classmethod
    def failed(cls, kind: Kind, message: str, **facts: Any) -> Outcome:
        """A failure of this kind; retryable as its kind says unless told otherwise."""
        facts.setdefault("retryable", kind in RETRYABLE)
        return cls(status="failed", kind=kind, message=message, **facts)

    @property
    def ok(self) -> bool:
        """Whether the trajectory was scored."""
        return self.status == "scored"
