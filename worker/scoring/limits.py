"""The pool's named limits as a reward function sees them: `limits["judge"].lease(tokens=…)`.

Each call gets a view of its own. It stops the row's run clock while the call waits, bounds the
wait by the row's budget, pauses the whole pool once when the function reports a 429, and settles
with the `usage` that the function returns.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from worker.rewards.errors import RateLimited
from worker.scoring.clock import RowClock
from worker.settings import LimitSettings, SettingsError

#: How long a lease lasts unless it is renewed, which it is while its call runs.
LEASE_S = 30.0


def declared(name: str, settings: LimitSettings) -> Any:
    """The limiter's own settings object. Raises SettingsError for numbers it refuses."""
    from limiter import Limits

    given = {key: value for key, value in settings.model_dump().items() if value is not None}
    try:
        return Limits(name=name, **given)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"limits.{name}: {error}") from None


def limiter_for(url: str, name: str, settings: LimitSettings) -> Any:
    """A limiter over its own connection."""
    from limiter import Limiter

    return Limiter(url, declared(name, settings))


class LimitBook(Mapping[str, Any]):
    """Limiters by name, each made when it is first asked for."""

    def __init__(self, url: str, settings: Mapping[str, LimitSettings]) -> None:
        self._url = url
        self._settings = dict(settings)
        self._made: dict[str, Any] = {}

    def declare(self, name: str, settings: LimitSettings, *, where: str) -> None:
        """Add a limit that is defined beside a manager. Raises SettingsError for a conflict."""
        known = self._settings.setdefault(name, settings)
        if known != settings:
            raise SettingsError(f"{where}: limit {name!r} is defined twice with different numbers")

    def settings(self) -> dict[str, dict[str, Any]]:
        """All limits as plain data, for helper processes."""
        return {name: each.model_dump() for name, each in self._settings.items()}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            if name not in self._settings:
                raise KeyError(unknown(name, self._settings))
            self._made[name] = limiter_for(self._url, name, self._settings[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    async def close(self) -> None:
        """Close every limiter that was made."""
        for made in self._made.values():
            await made.close()
        self._made.clear()


def unknown(name: str, known: Mapping[str, Any]) -> str:
    """What to say about a limit that is not there."""
    near = difflib.get_close_matches(name, known, n=1)
    there = ", ".join(known) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {there}"
    return f"there is no limit {name!r}; {hint}"


class Settling:
    """Whether a function's leases wait for the `usage` it returns: learnt from its last call."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected = True


class CallLimits(Mapping[str, Any]):
    """The limits during one call of a reward function; `kind` makes the faces, async or sync."""

    def __init__(
        self,
        limiters: Mapping[str, Any],
        clock: RowClock,
        settling: Settling,
        face: Callable[[CallLimits, str], Any],
    ) -> None:
        self.limiters, self.clock, self.settling = limiters, clock, settling
        self._face = face
        self.last: Any = None  # the lease taken last
        self.pending: Any = None  # a lease whose block has ended, waiting for `usage`
        self.throttled = False
        self.over = False

    def __getitem__(self, name: str) -> Any:
        if name not in self.limiters:
            raise KeyError(unknown(name, self.limiters))
        return self._face(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.limiters)

    def __len__(self) -> int:
        return len(self.limiters)

    def timeout_s(self, asked: float | None) -> float | None:
        """How long one lease may be waited for: what was asked, within the row's budget."""
        left = self.clock.wait_left_s()
        bound = left if asked is None else min(asked, left)
        return None if bound == math.inf else bound

    def learn(self, usage: int | None) -> None:
        """After a call that succeeded."""
        if self.last is not None:
            self.settling.expected = usage is not None

    def to_throttle(self, error: RateLimited) -> tuple[Any, int] | None:
        """The limiter that a 429 pauses, and the fence of the call that met it; once a call."""
        name = error.limit or (self.last.name if self.last is not None else None)
        if name is None and len(self.limiters) == 1:
            name = next(iter(self.limiters))
        if self.throttled or name is None or name not in self.limiters:
            return None
        self.throttled = True
        met = self.last is not None and self.last.name == name
        return self.limiters[name], self.last.fence if met else 0
