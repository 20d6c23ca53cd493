"""What one named upstream allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from limiter.errors import BadLimits
from limiter.keys import encode_name

LARGEST = 9 * 10**15  # bucket units; beyond it numbers in Lua are no longer whole
UNITS_A_TOKEN = 60_000
BURST_S, STRICT_BURST_S = 60.0, 1.0
WIRE_FIELDS = ("max_concurrent", "rpm", "tpm", "burst_ms", "strict", "oversize", "refund")


@dataclass(frozen=True, slots=True)
class Limits:
    """The caps on one named upstream; None is unlimited, 0 closes the gate.

    `rpm` requests and `tpm` tokens a minute, whole numbers. `burst_s` is how many seconds' worth a
    bucket holds: 60 by default, 1 under `strict`, under which no 60 s admit more than the limit.
    `oversize` says what becomes of a call that costs more than a bucket holds: it runs "alone" from
    a full bucket, or is an "error". `refund=False` is for upstreams that charge the reservation
    whatever was used. Raises BadLimits with the field and the value.
    """

    name: str
    max_concurrent: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    burst_s: float | None = None
    strict: bool = False
    oversize: Literal["alone", "error"] = "alone"
    refund: bool = True

    def __post_init__(self) -> None:
        encode_name(self.name)
        for field in ("max_concurrent", "rpm", "tpm"):
            object.__setattr__(self, field, _whole(field, getattr(self, field)))
        for field in ("strict", "refund"):
            if not isinstance(getattr(self, field), bool):
                raise BadLimits(f"{field}: must be true or false, got {getattr(self, field)!r}")
        if self.oversize not in ("alone", "error"):
            raise BadLimits(f"oversize: must be 'alone' or 'error', got {self.oversize!r}")
        object.__setattr__(self, "burst_s", self._burst())
        for field in ("rpm", "tpm"):
            self._check_size(field)

    def _burst(self) -> float:
        if self.burst_s is None:
            return STRICT_BURST_S if self.strict else BURST_S
        burst_s = _number("burst_s", self.burst_s)
        if burst_s < 0.001:
            raise BadLimits(f"burst_s: must be at least 0.001 seconds, got {self.burst_s!r}")
        if self.strict and burst_s >= 60:
            raise BadLimits(f"burst_s: must be below 60 under strict, got {self.burst_s!r}")
        return burst_s

    def _check_size(self, field: str) -> None:
        limit = getattr(self, field)
        if limit is None:
            return
        stored_s = 60.0 if self.strict else self.burst_ms / 1000
        if limit * stored_s * 1000 > LARGEST:
            raise BadLimits(
                f"{field}: {limit} a minute with burst_s={self.burst_s:g} is too large "
                f"(limit x burst_s x 1000 must be at most 9e15)"
            )

    @property
    def burst_ms(self) -> int:
        """How many milliseconds' worth of the rate a bucket holds."""
        assert self.burst_s is not None
        return max(1, round(self.burst_s * 1000))

    def capacity(self, limit: int | None) -> int | None:
        """Return what a bucket of that rate holds: at least one; None is unlimited."""
        if limit is None:
            return None
        return max(1, limit * self.burst_ms // 60_000)

    def to_wire(self) -> tuple[str, ...]:
        """Return the values in the order of WIRE_FIELDS; empty is unlimited."""
        return (
            *(
                "" if value is None else str(value)
                for value in (self.max_concurrent, self.rpm, self.tpm)
            ),
            str(self.burst_ms),
            str(int(self.strict)),
            self.oversize,
            str(int(self.refund)),
        )

    @classmethod
    def from_wire(cls, name: str, values: Mapping[str, str]) -> Limits:
        """Build limits from the fields of a settings key."""
        numbers = {
            field: int(values[field]) if values[field] else None
            for field in ("max_concurrent", "rpm", "tpm")
        }
        return cls(
            name=name,
            burst_s=int(values["burst_ms"]) / 1000,
            strict=values["strict"] == "1",
            oversize="error" if values["oversize"] == "error" else "alone",
            refund=values["refund"] == "1",
            **numbers,
        )

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of all settings but the name itself."""
        return tuple(field.name for field in fields(cls) if field.name != "name")


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadLimits(f"{field}: must be a number, got {value!r}")
    return float(value)


def _whole(field: str, value: Any) -> int | None:
    if value is None:
        return None
    number = (
        value if isinstance(value, int) and not isinstance(value, bool) else _number(field, value)
    )
    if number < 0:
        raise BadLimits(f"{field}: must not be negative, got {value!r}")
    if number != int(number):
        raise BadLimits(f"{field}: must be a whole number, got {value!r}")
    if number > LARGEST:
        raise BadLimits(f"{field}: is too large, got {value!r} (at most 9e15)")
    return int(number)
