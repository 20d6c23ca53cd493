"""Arguments of a call, checked and turned into what travels."""

from __future__ import annotations

import email.utils
import logging
import math
import time
from typing import TypedDict

from limiter.errors import BadLimits

logger = logging.getLogger("limiter")

LONGEST_S = 12 * 3600.0
LONGEST_PAUSE_S = 300.0
PAUSE_WITHOUT_HEADER_S = 1.0


class CallOptions(TypedDict):
    """What an acquire sends beside its cost."""

    lease_ms: int
    head_start_ms: int


def checked_options(timeout_s: float | None, lease_s: float, head_start_s: float) -> CallOptions:
    """Return the options in milliseconds. Raises BadLimits with the field and the value."""
    if timeout_s is not None:
        _check("timeout_s", timeout_s, least=0, most=math.inf)
    _check("lease_s", lease_s, least=0.001, most=LONGEST_S)
    _check("head_start_s", head_start_s, least=0, most=LONGEST_S)
    return {
        "lease_ms": max(1, round(lease_s * 1000)),
        "head_start_ms": round(head_start_s * 1000),
    }


def _check(field: str, value: float, *, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        upper = "" if math.isinf(most) else f" and at most {most:g}"
        raise BadLimits(f"{field}: must be at least {least:g}{upper} seconds, got {value!r}")


def retry_after_seconds(value: float | str | None) -> float:
    """Read a Retry-After: seconds, an HTTP date, or nothing (1 s); past and negative are 0."""
    if value is None:
        return PAUSE_WITHOUT_HEADER_S
    if isinstance(value, str):
        seconds = _seconds(value.strip())
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise BadLimits(f"retry_after_s: must be seconds or an HTTP date, got {value!r}")
    else:
        seconds = float(value)
    return 0.0 if math.isnan(seconds) else max(0.0, seconds)


def _seconds(header: str) -> float:
    try:
        return float(header)
    except ValueError:
        pass
    try:
        return email.utils.parsedate_to_datetime(header).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return PAUSE_WITHOUT_HEADER_S  # a header nobody can read is no header


def checked_retry_ms(limit: str, value: float | str | None) -> int:
    """Return a Retry-After in whole milliseconds, rounded up and at most five minutes."""
    seconds = retry_after_seconds(value)
    if seconds > LONGEST_PAUSE_S:
        logger.warning("pause cut limit=%s asked_s=%g pause_s=%g", limit, seconds, LONGEST_PAUSE_S)
        seconds = LONGEST_PAUSE_S
    return math.ceil(seconds * 1000)
