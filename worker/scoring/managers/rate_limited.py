"""The rate-limited manager: one lease on a limit around each row's call."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from worker.rewards.errors import BadInput, RateLimited
from worker.scoring import calls
from worker.scoring.failures import failure_of, shown
from worker.scoring.functions import load
from worker.scoring.limits import LEASE_S, unknown
from worker.scoring.managers.combined import Scorer, scorer_of
from worker.scoring.results import Verdict, number
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt
from worker.settings import LimitSettings, RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.workshop import Workshop

#: What the original manager allows where nothing is set.
MAX_CONCURRENT, RPM, TPM = 100, 1000, 100_000
DEFAULT_NAME = "reward"

Cost = Callable[[Row], Awaitable[int]]


class RateLimitedManager:
    """Takes place, request and tokens together, then calls; settles with returned `usage`."""

    def __init__(self, scorer: Scorer, limit: str, cost: Cost) -> None:
        self._scorer, self._limit, self._cost = scorer, limit, cost
        self.takes_outputs, self.uses_limit = scorer.takes_outputs, True

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self:
        """From the settings: a named limit, or one of its own."""
        limit = limit_of(fields, workshop)
        if fields.kwargs.get("limit") == limit:
            raise SettingsError(
                f"reward.kwargs.limit: {limit!r} is taken by the rate_limited manager already"
            )
        # A function that leases by itself is told of no limit: a second lease of this one would
        # wait for the first, which waits for the function.
        scorer = scorer_of(fields.model_copy(update={"limit": None}), workshop)
        return cls.around(scorer, fields, workshop)

    @classmethod
    def around(cls, scorer: Scorer, fields: RewardFields, workshop: Workshop) -> Self:
        """The same around any scorer."""
        limit = limit_of(fields, workshop)
        return cls(scorer, limit, cost_of(fields, takes_outputs=scorer.takes_outputs))

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Wait for the lease, then score within it. Raises what limiter and function raise."""
        tokens = await self._cost(row)
        limiter = attempt.limits[self._limit]
        clock = attempt.clock
        left_s = clock.wait_left_s()
        try:
            with clock.waiting():
                lease = await limiter.acquire(
                    tokens=tokens,
                    timeout_s=None if left_s == math.inf else left_s,
                    lease_s=LEASE_S,
                )
        except Exception as error:
            raise failure_of(error) from error
        try:
            found = await self._scorer.score(row, attempt)
        except BaseException as error:
            with contextlib.suppress(Exception):  # what went wrong first counts
                if isinstance(error, RateLimited) and error.limit in (None, self._limit):
                    await limiter.throttle(retry_after_s=error.retry_after_s, fence=lease.fence)
            with contextlib.suppress(Exception):
                await lease.release()
            raise
        try:
            await lease.release(tokens=found.usage)
        except Exception as error:  # the lease was lost: another call may have had its place
            raise failure_of(error) from error
        return found


def limit_of(fields: RewardFields, workshop: Workshop) -> str:
    """The limit's name; numbers given beside the manager define it. Raises SettingsError."""
    given = {
        name: value
        for name in ("max_concurrent", "rpm", "tpm")
        if (value := getattr(fields, name)) is not None
    }
    name = fields.limit or DEFAULT_NAME
    if name in workshop.settings.limits:
        if given:
            first = next(iter(given))
            raise SettingsError(f"reward.{first}: limits.{name} says it already; keep one")
        return name
    if fields.limit is not None and not given:
        raise SettingsError(f"reward.limit: {unknown(name, workshop.settings.limits)}")
    limits = {"max_concurrent": MAX_CONCURRENT, "rpm": RPM, "tpm": TPM, **given}
    workshop.limits.declare(name, LimitSettings(**limits), where="reward.limit")
    return name


def cost_of(fields: RewardFields, *, takes_outputs: bool) -> Cost:
    """How many tokens a row costs: its real length, a number, or what an estimator says."""
    tokens = "auto" if fields.tokens is None else fields.tokens
    if tokens == "auto":

        async def by_length(row: Row) -> int:
            return row.tokens(all_outputs=takes_outputs)

        return by_length
    if isinstance(tokens, int):
        constant = tokens

        async def by_constant(row: Row) -> int:
            return constant

        return by_constant
    return _estimator(tokens)


def _estimator(spec: str) -> Cost:
    function = load(spec, what="tokens")
    plan = calls.plan(function, {}, spec=spec)

    async def by_estimate(row: Row) -> int:
        try:
            value = function(**plan.arguments(row))
            if inspect.isawaitable(value):
                value = await value
            estimate = number(value, "tokens")
        except Exception as error:
            raise BadInput(f"tokens: the estimator {spec!r} failed: {shown(error)}") from error
        if estimate < 0:
            raise BadInput(f"tokens: the estimator {spec!r} returned {estimate:g}")
        return int(-(-estimate // 1))

    return by_estimate
