"""Everything the limiter can raise.

LimiterError
├── BadLimits              limits or arguments make no sense: says the field and the value
├── AcquireTimeout         no lease within the caller's time; nothing is held
├── CostExceedsCapacity    this cost can never be admitted
├── LeaseLost              the lease expired while its call ran
├── LimiterUnavailable     Redis did not answer within the caller's time; nothing is held for long
├── LimiterClosed          the limiter was closed
└── UnknownLimit           nobody has declared a limit of that name there
"""

from __future__ import annotations


class LimiterError(Exception):
    """The root of the limiter's errors."""


class BadLimits(LimiterError, ValueError):
    """Limits or arguments make no sense; mend the named field."""


class AcquireTimeout(LimiterError, TimeoutError):
    """No lease in time. Come back after `retry_after_s`, or whenever you like if that is None."""

    def __init__(
        self, limit: str, waited_s: float, retry_after_s: float | None, layers: str
    ) -> None:
        hint = "" if retry_after_s is None else f", free in {retry_after_s:g} s"
        super().__init__(f"{limit}: no lease within {waited_s:g} s (blocked by {layers}{hint})")
        self.limit, self.waited_s, self.layers = limit, waited_s, layers
        self.retry_after_s = retry_after_s


class CostExceedsCapacity(LimiterError, ValueError):
    """The cost is more than this limit can ever admit; waiting does not help."""

    def __init__(self, limit: str, tokens: int, largest: int) -> None:
        super().__init__(f"{limit}: {tokens} tokens can never be admitted, at most {largest}")
        self.limit, self.tokens, self.largest = limit, tokens, largest


class LeaseLost(LimiterError):
    """The lease expired, so another call may hold its place. Drop the result."""

    def __init__(self, limit: str, lease_id: str) -> None:
        super().__init__(f"{limit}: lease {lease_id} expired while held")
        self.limit, self.lease_id = limit, lease_id


class LimiterUnavailable(LimiterError, ConnectionError):
    """Redis did not answer, or refused to write. Nothing was let through; try again later."""

    def __init__(self, limit: str, reason: str) -> None:
        super().__init__(f"{limit}: Redis is unavailable: {reason}")
        self.limit, self.reason = limit, reason


class LimiterClosed(LimiterError):
    """The limiter was closed while a call was pending, or is used afterwards."""


class UnknownLimit(LimiterError, LookupError):
    """There is no limit of that name; it appears when a program first declares it."""
