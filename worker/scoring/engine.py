"""The scoring engine: one trajectory in, one outcome out, whatever happens on the way."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from queue_client.outcome import Kind, Outcome
from worker.rewards.errors import RateLimited, RewardFailure, ScoreTimeout
from worker.sandbox import tool_functions
from worker.scoring.clock import Deadline, RowClock
from worker.scoring.decoding import Decoder, load_tokenizer
from worker.scoring.failures import LimitTimeout, failed, failure_of
from worker.scoring.helpers.pool import HelperPool
from worker.scoring.limits import LimitBook
from worker.scoring.request import ScoreRequest
from worker.scoring.routing import Route, Router
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt
from worker.scoring.threads import ThreadPool
from worker.scoring.workshop import Workshop
from worker.settings import Settings

__all__ = ["ScoreRequest", "ScoringEngine"]

MAX_BACKOFF_S = 30.0
#: Kinds that are tried again only where the settings ask for it.
UNSURE = frozenset({Kind.SCORER_ERROR, Kind.UNPARSEABLE})


class ScoringEngine:
    """Scores trajectories as the settings say. Knows no queue; lives on one loop.

    Raises SettingsError at `start` for functions, managers or limits that cannot be had.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._workshop: Workshop | None = None
        self._router: Router | None = None

    async def start(self) -> None:
        """Load the tokenizer, the functions and managers that the settings name."""
        loop = asyncio.get_running_loop()
        name = self.settings.reward.tokenizer
        tokenizer = await loop.run_in_executor(None, load_tokenizer, name) if name else None
        worker = self.settings.worker
        self._workshop = Workshop(
            settings=self.settings,
            decoder=Decoder(tokenizer),
            helpers=HelperPool(size=worker.processes, memory_mb=worker.memory_mb),
            threads=ThreadPool(size=worker.threads),
            limits=LimitBook(self.settings.redis.url, self.settings.limits),
        )
        self._router = Router(self.settings, self._workshop)
        await self._router.start()

    async def score(self, request: ScoreRequest) -> Outcome:
        """Score one trajectory; a fault is an outcome with its kind, never an exception.

        Cancelling frees everything the row holds: lease, thread, helper process.
        """
        assert self._router is not None, "start() comes first"
        facts = _Facts(request)
        try:
            row = Row(request.trajectory)
            route = self._router.route(request.trajectory.data_source)
        except BaseException as error:
            return failed(failure_of(error), **facts.of(tries=1))
        return await self._tries(row, route, request, facts)

    async def _tries(self, row: Row, route: Route, request: ScoreRequest, facts: _Facts) -> Outcome:
        """Try until it is scored, its kind allows no more, or the budget is used up."""
        rules = route.rules
        end = min(request.deadline, time.monotonic() + rules.budget_s)
        done: dict[Kind, int] = {}
        tries = 0
        while True:
            tries += 1
            try:
                found = await self._try(row, route, end, facts)
                return Outcome.scored(found.reward, found.extra, **facts.of(tries))
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                failure = failure_of(error)
            kind = Kind(failure.kind)
            done[kind] = done.get(kind, 0) + 1
            pause_s = _pause_s(failure, tries, rules.backoff_s)
            if (
                not (failure.retryable or kind in UNSURE)
                or done[kind] > rules.retries.get(kind.value, 0)
                or time.monotonic() + pause_s >= end
            ):
                return failed(failure, **facts.of(tries))
            facts.wait_s += pause_s
            await asyncio.sleep(pause_s)

    async def _try(self, row: Row, route: Route, end: float, facts: _Facts) -> Any:
        assert self._workshop is not None, "start() comes first"
        left_s = end - time.monotonic()
        if left_s <= 0:
            raise ScoreTimeout("its time ran out before it was scored")
        rules = route.rules
        clock = RowClock(min(rules.timeout_s, left_s), min(rules.limit_wait_s, left_s))
        began = time.monotonic()
        try:
            async with Deadline(clock, left_s):
                return await route.score(row, Attempt(clock, self._workshop.limits))
        except TimeoutError:
            if clock.expired_waiting:
                raise LimitTimeout("its time ran out while it waited for a limit") from None
            raise ScoreTimeout("its time ran out") from None
        finally:
            facts.run_s += clock.run_s
            facts.wait_s += max(0.0, time.monotonic() - began - clock.run_s)

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any], *, deadline: float, queued_s: float
    ) -> Outcome:
        """Call a registered tool; the outcome's `extra` is what it answered, its reward None."""
        assert self._workshop is not None, "start() comes first"
        began = time.monotonic()
        left_s = deadline - began
        try:
            async with Deadline(RowClock(left_s, left_s), left_s):
                found = await self._call_tool(tool, arguments)
        except TimeoutError:
            failure: RewardFailure = ScoreTimeout("its time ran out")
        except RewardFailure as error:
            failure = error
        else:
            return Outcome.scored(None, found, wait_s=queued_s, run_s=time.monotonic() - began)
        return failed(failure, wait_s=queued_s, run_s=time.monotonic() - began)

    async def _call_tool(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert self._workshop is not None
        try:
            return await tool_functions.call_tool(
                tool, arguments, settings=self.settings.sandbox, limits=self._workshop.limits
            )
        except Exception as error:
            raise failure_of(error) from error

    @property
    def limits(self) -> Mapping[str, Any]:
        """The pool's limiters by name."""
        assert self._workshop is not None, "start() comes first"
        return self._workshop.limits

    async def close(self) -> None:
        """End helpers, threads and connections."""
        if self._workshop is not None:
            await self._workshop.close()


class _Facts:
    """What an outcome says beside the reward."""

    __slots__ = ("_request", "run_s", "wait_s")

    def __init__(self, request: ScoreRequest) -> None:
        self._request = request
        self.run_s = 0.0
        self.wait_s = request.queued_s

    def of(self, tries: int) -> dict[str, Any]:
        return {
            "attempts": self._request.attempt - 1 + tries,
            "wait_s": self.wait_s,
            "run_s": self.run_s,
            "uid": self._request.trajectory.uid,
        }


def _pause_s(failure: RewardFailure, tries: int, backoff_s: float) -> float:
    """Seconds before the next try: doubles, half of it by chance, never before Retry-After."""
    ceiling = min(MAX_BACKOFF_S, backoff_s * 2.0 ** min(tries - 1, 16))
    pause_s = ceiling * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing
    if isinstance(failure, RateLimited):
        return max(pause_s, failure.retry_after_s)
    return pause_s
