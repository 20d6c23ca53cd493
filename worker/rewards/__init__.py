"""Built-in reward functions, and what a user's own function may raise."""

from worker.rewards.errors import (
    BadInput,
    RateLimited,
    RewardFailure,
    SandboxFailure,
    ScoreTimeout,
    Unparseable,
    UpstreamError,
)

__all__ = [
    "BadInput",
    "RateLimited",
    "RewardFailure",
    "SandboxFailure",
    "ScoreTimeout",
    "Unparseable",
    "UpstreamError",
]
