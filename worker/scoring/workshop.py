"""What managers and functions are built from, and where a function will run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from worker.rewards import registry as builtins
from worker.sandbox.backends import close_backends
from worker.scoring import calls
from worker.scoring.calls import CallPlan
from worker.scoring.decoding import Decoder
from worker.scoring.functions import load
from worker.scoring.helpers.pool import HelperPool, Target
from worker.scoring.limits import LimitBook
from worker.scoring.runners import (
    HelperRunner,
    InlineRunner,
    LoopRunner,
    Runner,
    ThreadRunner,
)
from worker.scoring.threads import ThreadPool
from worker.settings import Settings, SettingsError


@dataclass(slots=True)
class Workshop:
    """One an engine."""

    settings: Settings
    decoder: Decoder
    helpers: HelperPool
    threads: ThreadPool
    limits: LimitBook
    on_close: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    #: The reward model with what templates its texts, once a manager has asked for it.
    reward_model: Any = None
    #: verl's default function, for managers of other makers: routed by data_source.
    compute_score: Callable[..., Awaitable[Any]] | None = None

    def runner(
        self,
        spec: str,
        executor: str | None,
        kwargs: Mapping[str, Any],
        *,
        limit: str | None = None,
    ) -> Runner:
        """Load a function and decide where it runs. Raises SettingsError.

        A function that takes `limit` gets the limit's name, unless its keywords say another; a
        built-in one that takes `sandbox` gets the settings of that name.
        """
        function = load(spec)
        given = self._arguments(function, spec, kwargs, limit)
        plan = calls.plan(function, given, spec=spec)
        if spec.startswith(builtins.PREFIX):
            _check_arguments(spec, given)
        chosen = chosen_executor(spec, executor, plan)
        if chosen == "inline":
            return InlineRunner(function, plan, self.threads)
        if chosen == "thread":
            return ThreadRunner(function, plan, self.threads)
        on_loop = LoopRunner(function, plan)
        if chosen == "async":
            return on_loop
        target = self._target(spec, given, plan, awaits=executor == "process")
        return HelperRunner(target, plan, self.helpers, on_loop)

    def _arguments(
        self, function: Any, spec: str, kwargs: Mapping[str, Any], limit: str | None
    ) -> Mapping[str, Any]:
        """The configured keywords, and those that settings elsewhere give."""
        if spec.startswith(builtins.PREFIX) and _takes(function, "sandbox"):
            kwargs = {"sandbox": self.settings.sandbox, **kwargs}
        if limit is not None and "limit" not in kwargs and _takes(function, "limit"):
            kwargs = {**kwargs, "limit": limit}
        return kwargs

    def _target(
        self, spec: str, kwargs: Mapping[str, Any], plan: CallPlan, *, awaits: bool
    ) -> Target:
        return Target(
            key=repr((spec, sorted(kwargs.items()))),
            spec=spec,
            kwargs=kwargs,
            limits=self.limits.settings() if plan.takes_limits else None,
            redis_url=self.settings.redis.url if plan.takes_limits else "",
            awaits=awaits,
        )

    async def close(self) -> None:
        """End what was started."""
        self.threads.close()
        self.decoder.close()
        for close in self.on_close:
            await close()
        await close_backends()
        await self.helpers.close()
        await self.limits.close()


def chosen_executor(spec: str, executor: str | None, plan: CallPlan) -> str:
    """`async`, `thread`, `process`, or `inline` for a bounded built-in. Raises SettingsError."""
    chosen = executor or "auto"
    if chosen == "auto" and spec.startswith(builtins.PREFIX):
        chosen = builtins.builtin(spec).executor
        if chosen == "thread" and not plan.is_async:
            return "inline"
    if chosen == "auto":
        return "async" if plan.is_async else "thread" if plan.takes_limits else "process"
    if plan.is_async and plan.takes_limits and chosen != "async":
        raise SettingsError(
            f"reward.executor: {spec!r} is async and takes limits, so it cannot be {chosen!r}"
        )
    return chosen


def _takes(function: Any, name: str) -> bool:
    try:
        return name in signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return False


def _check_arguments(spec: str, kwargs: Mapping[str, Any]) -> None:
    try:
        builtins.builtin(spec).check(kwargs)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"reward.kwargs: {spec!r}: {error}") from error
