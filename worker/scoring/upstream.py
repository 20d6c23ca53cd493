"""Reading what an upstream says about itself."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime

DEFAULT_RETRY_AFTER_S = 1.0
LONGEST_RETRY_AFTER_S = 300.0


def retry_after_s(header: str | None, *, now: float | None = None) -> float:
    """Seconds from a `Retry-After` header: a number or an HTTP date, between 0 and 300.

    >>> retry_after_s("2"), retry_after_s(None), retry_after_s("-3")
    (2.0, 1.0, 0.0)
    """
    if not header:
        return DEFAULT_RETRY_AFTER_S
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - (
                time.time() if now is None else now
            )
        except (ValueError, TypeError):
            return DEFAULT_RETRY_AFTER_S
    if math.isnan(seconds):
        return DEFAULT_RETRY_AFTER_S
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)
