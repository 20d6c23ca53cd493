"""What the rate-limited manager reads of verl's configuration, checked before anything is built."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from queue_client.verl.options import URL_VARIABLES, OnFailure, section

DEFAULT_LIMIT = "rate_limited"


@dataclass(frozen=True, slots=True)
class LimitedOptions:
    """verl's keys under `reward` (before 0.7.1 under `reward_model`), and ours.

    `max_rpm`, `max_tpm`: None is unlimited. `timeout` bounds one call, `limit_wait_s` the wait for
    its turn. `redis_url`: the limits are the cluster's, under `limit_name`; None: this process'.
    `burst_s`: how many seconds' worth may go at once after a quiet time.
    """

    max_concurrent: int = 1
    max_rpm: float | None = None
    max_tpm: float | None = None
    estimated_tokens_per_request: int = 2000
    timeout: float = 300.0
    limit_wait_s: float = 3600.0
    burst_s: float = 1.0
    on_failure: OnFailure = "zero"
    limit_name: str = DEFAULT_LIMIT
    redis_url: str | None = field(default=None, repr=False)


def limited_options(config: Any) -> LimitedOptions:
    """Read them. Raises ValueError with the key and the value; nothing is coerced silently."""
    found: dict[str, Any] = {}
    for root in ("reward_model", "reward"):
        given = section(config, root)
        if isinstance(given, Mapping):
            found |= {
                key: given[key]
                for key in LimitedOptions.__dataclass_fields__
                if given.get(key) is not None
            }
            nested = section(given, "reward_kwargs", "redis_url")
            if nested:
                found.setdefault("redis_url", nested)
    for key in ("max_rpm", "max_tpm", "timeout", "limit_wait_s", "burst_s"):
        if key in found:
            above_zero(f"reward.{key}", found[key])
    for key in ("max_concurrent", "estimated_tokens_per_request"):
        if key in found and above_zero(f"reward.{key}", found[key]) != int(found[key]):
            raise ValueError(f"reward.{key}: a whole number expected (got {found[key]!r})")
    if found.get("on_failure", "zero") not in get_args(OnFailure):
        choices = " | ".join(get_args(OnFailure))
        raise ValueError(f"reward.on_failure: {choices} expected (got {found['on_failure']!r})")
    found.setdefault("redis_url", url_from_environment())
    return LimitedOptions(**found)


def above_zero(name: str, value: Any) -> float:
    """Return a finite number above 0. Raises ValueError with the name and the value."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name}: a number above 0 expected (got {value!r})")
    return float(value)


def url_from_environment() -> str | None:
    """The address of Redis, or None."""
    return next((os.environ[name] for name in URL_VARIABLES if os.environ.get(name)), None)
