"""How a limit stands, for dashboards: counters, levels, and the last hour by minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from limiter.limits import UNITS_A_TOKEN, Limits
from limiter.replies import text


@dataclass(frozen=True, slots=True)
class Usage:
    """One limit at one moment; counters are since `since_ms` (the state was born then).

    Levels and capacities are requests and tokens, None where unlimited; a level below zero is debt.
    Times that end in `_s` are seconds, in `_ms` milliseconds since 1970 on Redis' clock.
    """

    name: str
    limits: Limits
    in_flight: int
    waiting: int
    oldest_wait_s: float  # how long the head of the queue has waited
    rpm_level: float | None
    rpm_capacity: int | None
    tpm_level: float | None
    tpm_capacity: int | None
    pause_s: float
    grants: int
    refusals: int
    reclaimed: int  # leases that expired
    waits: int  # grants that had to wait in line
    wait_s_total: float  # seconds those waited, together
    throttles: int  # pauses begun
    since_ms: int
    now_ms: int
    last_ms: int  # the last call that changed something
    source: str  # "declared" by a program or set by an "operator"
    changed_by: str
    changed_ms: int
    revision: int  # counts changes of the settings

    @property
    def mean_wait_s(self) -> float:
        """Seconds a grant that had to wait has waited, on average."""
        return self.wait_s_total / self.waits if self.waits else 0.0


@dataclass(frozen=True, slots=True)
class Minute:
    """What happened in one minute; `start_s` is its start in seconds since 1970."""

    start_s: int
    grants: int
    refusals: int
    reclaimed: int
    waits: int
    wait_s_total: float
    throttles: int


def read_usage(name: str, reply: list[Any]) -> Usage:
    """Read what limit_usage.lua returns."""
    flat = dict(zip(map(text, reply[::2]), map(text, reply[1::2]), strict=True))
    settings = {key[4:]: value for key, value in flat.items() if key.startswith("set.")}
    limits = Limits.from_wire(name, settings)

    def level(letter: str, limit: int | None) -> float | None:
        return None if limit is None else int(flat[f"{letter}level"]) / UNITS_A_TOKEN

    return Usage(
        name=name,
        limits=limits,
        in_flight=int(flat["in_flight"]),
        waiting=int(flat["waiting"]),
        oldest_wait_s=int(flat["oldest_ms"]) / 1000,
        rpm_level=level("r", limits.rpm),
        rpm_capacity=limits.capacity(limits.rpm),
        tpm_level=level("t", limits.tpm),
        tpm_capacity=limits.capacity(limits.tpm),
        pause_s=int(flat["pause_ms"]) / 1000,
        grants=int(flat["grants"]),
        refusals=int(flat["refusals"]),
        reclaimed=int(flat["reclaimed"]),
        waits=int(flat["waits"]),
        wait_s_total=int(flat["wait_ms"]) / 1000,
        throttles=int(flat["throttles"]),
        since_ms=int(flat["epoch"]) // 1000,
        now_ms=int(flat["now_ms"]),
        last_ms=int(flat["last_ms"]),
        source=settings.get("source", "declared"),
        changed_by=settings.get("by", ""),
        changed_ms=int(settings.get("at_ms", "0")),
        revision=int(settings.get("revision", "0")),
    )


def read_history(fields: Mapping[Any, Any], usage: Usage) -> list[Minute]:
    """Return the last hour's minutes in order; minutes in which nothing happened are left out.

    Redis keeps running totals by minute; the present totals stand for the present minute.
    """
    totals = {int(text(minute)): _numbers(text(value)) for minute, value in fields.items()}
    present = (
        usage.since_ms * 1000,
        usage.grants,
        usage.refusals,
        usage.reclaimed,
        usage.waits,
        round(usage.wait_s_total * 1000),
        usage.throttles,
    )
    totals[max([usage.last_ms // 60_000, *totals])] = present
    first = usage.now_ms // 60_000 - 60
    return [minute for minute in _differences(totals) if minute.start_s // 60 > first]


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(map(int, value.split()))


def _differences(totals: Mapping[int, tuple[int, ...]]) -> Iterable[Minute]:
    before: tuple[int, ...] = ()
    for minute, total in sorted(totals.items()):
        born_again = not before or total[0] // 1000 != before[0] // 1000
        delta = (
            total[1:] if born_again else [a - b for a, b in zip(total[1:], before[1:], strict=True)]
        )
        before = total
        if any(delta):
            grants, refusals, reclaimed, waits, wait_ms, throttles = delta
            yield Minute(minute * 60, grants, refusals, reclaimed, waits, wait_ms / 1000, throttles)
