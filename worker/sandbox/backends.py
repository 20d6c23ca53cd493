"""The backends of this process: one client a server and event loop, one local runner.

A reward function has no place of its own to keep a connection pool, so it is kept here.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from worker.sandbox.calls import RetryPolicy
from worker.sandbox.grading import Backend
from worker.sandbox.limits import Limit
from worker.sandbox.local import Bounds, LocalRunner
from worker.settings import SandboxSettings

logger = logging.getLogger(__name__)

_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs run: on the server at `url`, or here without one."""

    url: str | None = None
    allow_unisolated: bool = False
    python: str | None = None
    attempts: int = 5
    http_timeout_s: float | None = None
    bounds: Bounds = _BOUNDS


def place_of(settings: SandboxSettings, *, url: str | None = None) -> Place:
    """Return the place that the settings name; `url` goes before theirs."""
    return Place(
        url or settings.url,
        allow_unisolated=settings.allow_unisolated,
        python=settings.python,
        attempts=settings.retries,
        http_timeout_s=settings.http_timeout_s,
    )


def limit_of(limits: Mapping[str, Limit] | None, name: str) -> Limit | None:
    """Return the limit of that name, or None with a warning: then nothing protects the server."""
    if limits is not None and name in limits:
        return limits[name]
    _warn_unlimited(name)
    return None


@cache
def _warn_unlimited(name: str) -> None:
    logger.warning("sandbox calls are not limited, there is no such limit limit=%s", name)


_Kept = dict[Place, Backend]
_KEPT: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = weakref.WeakKeyDictionary()


def backend_at(place: Place) -> Backend:
    """Return the running loop's backend for a place. Raises NoIsolation, ValueError for a url."""
    kept = _KEPT.setdefault(asyncio.get_running_loop(), {})
    if place not in kept:
        kept[place] = _made(place)
    return kept[place]


async def close_backends() -> None:
    """Close the running loop's connections; the next call opens them anew."""
    for backend in _KEPT.pop(asyncio.get_running_loop(), {}).values():
        await backend.aclose()


def _made(place: Place) -> Backend:
    if place.url is None:
        return LocalRunner(
            bounds=place.bounds,
            allow_unisolated=place.allow_unisolated,
            python=place.python,
        )
    from worker.sandbox.async_client import AsyncSandboxFusion  # httpx, only where it is used

    retry = RetryPolicy(attempts=place.attempts)
    return AsyncSandboxFusion(place.url, retry=retry, timeout_s=place.http_timeout_s)
