"""Several judge endpoints behind one model: the least loaded one is asked, a failing one left out.

An endpoint that fails rests for 0.5 s, then twice as long each time, 30 s at most; afterwards one
call at a time tries it. If all of them rest, all of them are tried: better than no judge at all.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

FIRST_REST_S = 0.5
LONGEST_REST_S = 30.0


@dataclass(slots=True, eq=False)
class Endpoint:
    """One endpoint's base URL, such as `http://10.0.0.7:8000/v1`, and how it fares."""

    url: str = field(repr=False)
    in_flight: int = 0
    failures: int = 0  # in a row
    rests_until: float = 0.0  # on the clock of the endpoints
    last_use: int = 0

    @property
    def label(self) -> str:
        """Host and port: what may stand in a message, without credentials or a path."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


@dataclass(slots=True)
class Endpoints:
    """The endpoints of one judge, in one process."""

    all: Sequence[Endpoint]
    clock: Callable[[], float] = time.monotonic
    _uses: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @contextmanager
    def use(self, *, avoid: Sequence[Endpoint] = ()) -> Iterator[Endpoint]:
        """Count one call at the least loaded endpoint, while the block runs."""
        chosen = self.choose(avoid=avoid)
        chosen.in_flight += 1
        chosen.last_use = next(self._uses)
        try:
            yield chosen
        finally:
            chosen.in_flight -= 1

    def choose(self, *, avoid: Sequence[Endpoint] = ()) -> Endpoint:
        """Return the endpoint to ask next; those in `avoid` only if there is no other."""
        left = [each for each in self.all if each not in avoid] or list(self.all)
        able = [each for each in left if self._is_able(each)] or left
        return min(able, key=lambda each: (each.in_flight, each.last_use))

    def succeeded(self, endpoint: Endpoint) -> None:
        """An answer came, whatever it says: the endpoint is well."""
        if endpoint.failures:
            logger.info("judge endpoint recovered endpoint=%s", endpoint.label)
        endpoint.failures, endpoint.rests_until = 0, 0.0

    def failed(self, endpoint: Endpoint) -> None:
        """No usable answer came: let the endpoint rest."""
        now = self.clock()
        if now < endpoint.rests_until:
            return  # a call that began before the rest: the same fault, not another one
        endpoint.failures += 1
        rest_s = min(FIRST_REST_S * 2.0 ** min(endpoint.failures - 1, 10), LONGEST_REST_S)
        endpoint.rests_until = now + rest_s
        logger.warning(
            "judge endpoint failed endpoint=%s failures=%d rest_s=%.1f",
            endpoint.label,
            endpoint.failures,
            rest_s,
        )

    def _is_able(self, endpoint: Endpoint) -> bool:
        if not endpoint.failures:
            return True
        return endpoint.in_flight == 0 and self.clock() >= endpoint.rests_until
