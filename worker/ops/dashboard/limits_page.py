"""The Limits page: what each limit admits now, its last hour, and who changed it last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from flask import Response, make_response, render_template

from limiter import Minute, Usage
from worker.ops.dashboard.pages import context
from worker.ops.dashboard.shown import clipped
from worker.ops.dashboard.state import state

MINUTES = 60
PLOT_HEIGHT = 56


@dataclass(frozen=True, slots=True)
class Bar:
    """One minute of a plot; heights from the bottom in plot units."""

    x: int
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """An hour of one counter."""

    label: str
    css: str
    total: int
    peak: int
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket as a page shows it; `share` is the part that is left, 0 to 100."""

    label: str
    level: str
    capacity: str
    rate: str
    share: float


@dataclass(frozen=True, slots=True)
class Card:
    """One limit as the page shows it."""

    usage: Usage
    name: str
    allowed: str
    buckets: tuple[Bucket, ...]
    plots: tuple[Plot, ...]
    hour_reclaimed: int
    changed: str


def limits_overview() -> Response:
    """Every limit, by name."""
    cards = [card(usage, minutes) for usage, minutes in state().limits.read()]
    response = make_response(
        render_template("rewardpool/limits.html", **context(), active_tab="limits", cards=cards)
    )
    response.headers["Cache-Control"] = "no-store"
    return response


def card(usage: Usage, minutes: Sequence[Minute]) -> Card:
    """Put one limit into the page's words."""
    limits = usage.limits
    buckets = (
        _bucket("requests", limits.rpm, usage.rpm_level, usage.rpm_capacity),
        _bucket("tokens", limits.tpm, usage.tpm_level, usage.tpm_capacity),
    )
    now_s = usage.now_ms // 1000
    grants = {minute.start_s: minute.grants for minute in minutes}
    refusals = {minute.start_s: minute.refusals for minute in minutes}
    return Card(
        usage=usage,
        name=clipped(usage.name, 200),
        allowed="unlimited" if limits.max_concurrent is None else f"{limits.max_concurrent:,}",
        buckets=buckets,
        plots=(
            _plot("grants", "grants", grants, now_s),
            _plot("refusals", "refusals", refusals, now_s),
        ),
        hour_reclaimed=sum(minute.reclaimed for minute in minutes),
        changed=_changed(usage),
    )


def _bucket(label: str, rate: int | None, level: float | None, capacity: int | None) -> Bucket:
    if rate is None or level is None or capacity is None:
        return Bucket(label, "unlimited", "", "", 100.0)
    share = max(0.0, min(100.0, 100 * level / capacity))
    return Bucket(label, _count(level), f"{capacity:,}", f"{rate:,}", share)


def _count(level: float) -> str:
    return f"{level:,.0f}" if abs(level) >= 100 else f"{level:,.1f}"


def _plot(label: str, css: str, by_minute: dict[int, int], now_s: int) -> Plot:
    last = now_s // 60 * 60
    counts = [by_minute.get(last - 60 * back, 0) for back in range(MINUTES - 1, -1, -1)]
    peak = max(counts)
    bars = tuple(
        Bar(
            x=position,
            height=round(PLOT_HEIGHT * count / peak, 2),
            title=f"{_clock(last - 60 * (MINUTES - 1 - position))}: {count:,}",
        )
        for position, count in enumerate(counts)
        if count > 0
    )
    return Plot(label, css, sum(counts), peak, bars)


def _changed(usage: Usage) -> str:
    if not usage.changed_ms:
        return "never changed"
    at = datetime.fromtimestamp(usage.changed_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    how = "declared by" if usage.source == "declared" else f"set by {clipped(usage.source, 50)}"
    return f"{how} {clipped(usage.changed_by, 200) or 'unknown'}, {at}"


def _clock(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M UTC")
