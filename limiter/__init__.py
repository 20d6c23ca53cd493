"""One named limit stands for one upstream; every process on every host asks Redis first."""

from __future__ import annotations

from limiter.admin import (
    declare_limits,
    history_of,
    overview,
    overview_async,
    reset_limits,
    resume_limit,
    set_limits,
    usage_of,
)
from limiter.errors import (
    AcquireTimeout,
    BadLimits,
    CostExceedsCapacity,
    LeaseLost,
    LimiterClosed,
    LimiterError,
    LimiterUnavailable,
    UnknownLimit,
)
from limiter.lease import Lease, SyncLease
from limiter.limiter import Limiter
from limiter.limits import Limits
from limiter.options import retry_after_seconds
from limiter.several import LeaseSet, lease_all
from limiter.sync import SyncLimiter
from limiter.usage import Minute, Usage

DISTRIBUTION = "rewardpool"

__all__ = [
    "AcquireTimeout",
    "BadLimits",
    "CostExceedsCapacity",
    "Lease",
    "LeaseLost",
    "LeaseSet",
    "Limiter",
    "LimiterClosed",
    "LimiterError",
    "LimiterUnavailable",
    "Limits",
    "Minute",
    "SyncLease",
    "SyncLimiter",
    "UnknownLimit",
    "Usage",
    "declare_limits",
    "history_of",
    "lease_all",
    "overview",
    "overview_async",
    "reset_limits",
    "resume_limit",
    "retry_after_seconds",
    "set_limits",
    "usage_of",
]
