"""Classes by their names in verl, for code that imports the original ones."""

from __future__ import annotations

from queue_client.compat.bucket import AsyncTokenBucket
from queue_client.compat.limited import RateLimitedRewardManager

__all__ = ["AsyncTokenBucket", "RateLimitedRewardManager"]
