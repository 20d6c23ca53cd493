"""Where one call of a reward function runs: on the loop, in a thread, in a killable process.

| executor | runs | a timeout |
| --- | --- | --- |
| async | on the worker's loop | cancels the task |
| thread | in a thread, which is abandoned when it hangs | frees the place |
| process | in a helper process | kills it with its process group |

`auto`: async functions run on the loop, sync ones that take `limits` in threads (they wait for
somebody else), other sync ones in processes (they may hang, crash or eat memory).
Built-in functions say themselves where they belong.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from worker.rewards.errors import BadInput, RateLimited, RewardFailure, ScoreTimeout
from worker.scoring.calls import CallPlan
from worker.scoring.clock import Expiry, RowClock
from worker.scoring.failures import LimitTimeout, failure_of, rebuilt
from worker.scoring.helpers.pool import HelperPool, Target
from worker.scoring.leases import (
    AsyncFace,
    SyncFace,
    close_pending,
    close_pending_sync,
    throttle,
    throttle_sync,
)
from worker.scoring.limits import CallLimits, LimitBook, Settling
from worker.scoring.results import BadScore, Verdict, number, plain, verdict
from worker.scoring.rows import Row
from worker.scoring.threads import Raised, ThreadPool

logger = logging.getLogger(__name__)

UNWIND_S = 0.5
CANCELLED_ITSELF = "the reward function cancelled itself"
#: A built-in that is bounded and cheap runs on the loop up to this length, in a thread beyond.
INLINE_CHARACTERS = 20_000


@dataclass(slots=True)
class Attempt:
    """One try at a row: its clocks, and the limits it may ask."""

    clock: RowClock
    limits: LimitBook


class Runner(Protocol):
    """Runs one function for one row."""

    plan: CallPlan

    async def run(self, row: Row, attempt: Attempt) -> Verdict:
        """Return what the function came to. Raises RewardFailure."""
        ...


def timed_out(clock: RowClock) -> RewardFailure:
    """Which clock ran out."""
    if clock.expired_waiting:
        return LimitTimeout(f"no lease within {clock.wait_limit_s:.3g} s")
    return ScoreTimeout(f"no reward within {clock.run_limit_s:.3g} s")


class LoopRunner:
    """Runs a function on the loop; what it awaits is a task of its own."""

    def __init__(self, function: Callable[..., Any], plan: CallPlan) -> None:
        self.plan, self._function = plan, function
        self._settling = Settling()

    async def run(self, row: Row, attempt: Attempt) -> Verdict:
        """Call, await what it returns if that can be awaited, read the result."""
        arguments = self.plan.arguments(row)
        clock = attempt.clock
        clock.start()
        try:
            if self.plan.takes_limits:
                return await self._with_limits(arguments, attempt)
            value = self._called(arguments)
            if inspect.isawaitable(value):
                value = await supervised(value, clock)
            return verdict(self.plan.result(value))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            raise failure_of(error) from error
        finally:
            clock.stop()

    def _called(self, arguments: dict[str, Any]) -> Any:
        try:
            return self._function(**arguments)
        except asyncio.CancelledError:  # nobody cancelled the row
            raise RuntimeError(CANCELLED_ITSELF) from None

    async def _with_limits(self, arguments: dict[str, Any], attempt: Attempt) -> Verdict:
        call = CallLimits(attempt.limits, attempt.clock, self._settling, AsyncFace)
        found: Verdict | None = None
        try:
            value = self._called({**arguments, "limits": call})
            if inspect.isawaitable(value):
                value = await supervised(value, attempt.clock)
            found = verdict(self.plan.result(value))
            call.learn(found.usage)
        except RateLimited as error:
            await throttle(call, error)
            raise
        finally:
            await close_pending(call, found.usage if found is not None else None)
        return found


async def supervised(awaitable: Any, clock: RowClock) -> Any:
    """Await it in a task of its own until the clock runs out; re-raises what it raised.

    A task that swallows its cancellation is left behind and told again: it costs no place.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(_caught(awaitable))
    done: asyncio.Future[None] = loop.create_future()
    task.add_done_callback(lambda _: _settle(done))
    expiry = Expiry(clock, lambda: _fail(done))
    try:
        await done
    except TimeoutError:
        failure = timed_out(clock)
        await _end(task)
        raise failure from None
    except asyncio.CancelledError:
        await _end(task)
        raise
    finally:
        expiry.stop()
    value, error = task.result()
    if isinstance(error, asyncio.CancelledError):
        raise RuntimeError(CANCELLED_ITSELF)
    if error is not None:
        raise error
    return value


async def _caught(awaitable: Any) -> tuple[Any, BaseException | None]:
    """Not even SystemExit may leave a task: it would end the loop."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _fail(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(TimeoutError())


_stray: set[asyncio.Task[Any]] = set()


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel and give it a moment to hand back what it holds."""
    task.cancel()
    _stray.add(task)
    task.add_done_callback(_stray.discard)
    await asyncio.wait({task}, timeout=UNWIND_S)
    if not task.done():
        logger.warning("reward function ignored its cancellation")
        task.cancel()


class InlineRunner(LoopRunner):
    """Runs a bounded built-in on the loop, in a thread where the text is long."""

    def __init__(self, function: Callable[..., Any], plan: CallPlan, threads: ThreadPool) -> None:
        super().__init__(function, plan)
        self._long = ThreadRunner(function, plan, threads)

    async def run(self, row: Row, attempt: Attempt) -> Verdict:
        """As long as the text is short a call costs less than a change of threads."""
        if sum(len(text) for text in row.texts if text) > INLINE_CHARACTERS:
            return await self._long.run(row, attempt)
        return await super().run(row, attempt)


class ThreadRunner:
    """Runs a function in a thread; an async one there has a loop of its own."""

    def __init__(self, function: Callable[..., Any], plan: CallPlan, threads: ThreadPool) -> None:
        self.plan, self._function, self._threads = plan, function, threads
        self._settling = Settling()

    async def run(self, row: Row, attempt: Attempt) -> Verdict:
        """Call in a thread; what can be awaited after all is awaited on the loop."""
        arguments = self.plan.arguments(row)
        clock = attempt.clock
        limits = CallLimits(attempt.limits, clock, self._settling, SyncFace)
        try:
            value = await self._threads.run(lambda: self._call(arguments, limits), clock)
            if isinstance(value, Verdict):
                return value
            if inspect.isawaitable(value):
                clock.start()
                value = await supervised(value, clock)
            return verdict(self.plan.result(value))
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            raise timed_out(clock) from None
        except Raised as raised:
            raise failure_of(raised.error) from raised.error
        except BaseException as error:
            raise failure_of(error) from error
        finally:
            limits.over = True
            clock.stop()

    def _call(self, arguments: dict[str, Any], limits: CallLimits) -> Any:
        """In the thread."""
        if self.plan.is_async:
            return asyncio.run(self._function(**arguments))
        if self.plan.takes_limits:
            return called_with_limits(self._function, arguments, self.plan, limits)
        return self._function(**arguments)


def called_with_limits(
    function: Callable[..., Any], arguments: dict[str, Any], plan: CallPlan, call: CallLimits
) -> Verdict:
    """Call a sync function with its limits; settle and release what it left open."""
    found: Verdict | None = None
    try:
        found = verdict(plan.result(function(**arguments, limits=call)))
        call.learn(found.usage)
    except RateLimited as error:
        throttle_sync(call, error)
        raise
    finally:
        close_pending_sync(call, found.usage if found is not None else None)
    return found


class HelperRunner:
    """Runs a function in a helper process."""

    def __init__(
        self, target: Target, plan: CallPlan, helpers: HelperPool, on_loop: LoopRunner
    ) -> None:
        self.plan, self.target, self._helpers = plan, target, helpers
        self._on_loop = on_loop
        self._awaits_on_loop = False

    async def run(self, row: Row, attempt: Attempt) -> Verdict:
        """Run in a helper; a function that turns out to be async moves to the loop for good."""
        if self._awaits_on_loop:
            return await self._on_loop.run(row, attempt)
        try:
            reply = await self._helpers.run(self.target, self.plan.arguments(row), attempt.clock)
        except TimeoutError:
            raise timed_out(attempt.clock) from None
        except (TypeError, ValueError) as error:
            raise BadInput(f"its fields cannot be sent to a helper: {error}") from error
        if "error" in reply:
            raise rebuilt(reply)
        if reply.get("awaitable"):
            self._awaits_on_loop = True
            return await self._on_loop.run(row, attempt)
        return _checked(reply)


def _checked(reply: dict[str, Any]) -> Verdict:
    """A helper's reply is read as strictly as a function's: its process may not be its own."""
    reward, extra, usage = reply.get("reward"), reply.get("extra"), reply.get("usage")
    if not isinstance(extra, dict) or not (usage is None or isinstance(usage, int)):
        raise BadScore("the helper process sent no verdict")
    return Verdict(None if reward is None else number(reward, "the reward"), plain(extra), usage)
