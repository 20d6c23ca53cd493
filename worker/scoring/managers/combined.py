"""What a manager calls for its rewards: one function, or several with weights."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from worker.rewards.errors import RewardFailure
from worker.scoring.clock import RowClock
from worker.scoring.results import Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt, Runner
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.workshop import Workshop


class Scorer(Protocol):
    """One function, or several that act as one."""

    takes_outputs: bool
    uses_limit: bool

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Return the row's reward. Raises RewardFailure."""
        ...


def scorer_of(
    fields: RewardFields,
    workshop: Workshop,
    *,
    executor: str | None = None,
    own_kwargs: frozenset[str] = frozenset(),
) -> Scorer:
    """Build what the settings name. Raises SettingsError.

    `own_kwargs` are the keyword arguments that the manager keeps for itself.
    """
    kwargs = {name: value for name, value in fields.kwargs.items() if name not in own_kwargs}
    chosen = executor or fields.executor
    if fields.functions is not None:
        return _combination(fields, workshop, chosen, kwargs)
    if fields.weights is not None:
        raise SettingsError("reward.weights: they belong to reward.functions, which is not set")
    if fields.function is None:
        raise SettingsError("reward.function: none is set")
    return Single(workshop.runner(fields.function, chosen, kwargs, limit=fields.limit))


def uses_limit(runner: Runner) -> bool:
    """Whether a function takes leases by itself."""
    return runner.plan.takes_limits or "limit" in runner.plan.constants


class Single:
    """One function."""

    def __init__(self, runner: Runner) -> None:
        self.takes_outputs = runner.plan.takes_outputs
        self.uses_limit = uses_limit(runner)
        self._runner = runner

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Return the function's own verdict."""
        return await self._runner.run(row, attempt)


@dataclass(frozen=True, slots=True)
class Part:
    """One function of a combination."""

    name: str
    weight: float
    runner: Runner


class Combination:
    """A weighted sum; each part is reported under its name, its fields as `name/field`."""

    def __init__(self, parts: list[Part]) -> None:
        self.takes_outputs = any(part.runner.plan.takes_outputs for part in parts)
        self.uses_limit = any(uses_limit(part.runner) for part in parts)
        self._parts = parts

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Run all parts side by side; a part that fails fails the row, with its name.

        A part that returns None is left out of the sum; if all do, the row is skipped.
        """
        clocks = [RowClock(attempt.clock.run_limit_s, attempt.clock.wait_left_s())
                  for _ in self._parts]  # fmt: skip
        tasks = [
            asyncio.ensure_future(self._run(part, row, Attempt(clock, attempt.limits)))
            for part, clock in zip(self._parts, clocks, strict=True)
        ]
        try:
            verdicts = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            attempt.clock.run_s += max(clock.run_s for clock in clocks)
            attempt.clock.wait_s += max(clock.wait_s for clock in clocks)
        return self._sum(verdicts)

    async def _run(self, part: Part, row: Row, attempt: Attempt) -> Verdict:
        try:
            return await part.runner.run(row, attempt)
        except RewardFailure as failure:
            failure.args = (f"{part.name}: {failure}",)
            raise

    def _sum(self, verdicts: list[Verdict]) -> Verdict:
        extra: dict[str, Any] = {}
        rewards, usage = [], 0
        for part, found in zip(self._parts, verdicts, strict=True):
            extra[part.name] = found.reward
            extra |= {
                f"{part.name}/{key}": value
                for key, value in found.extra.items()
                if key not in ("score", "acc") or value != found.reward
            }
            usage += found.usage or 0
            if found.reward is not None:
                rewards.append(part.weight * found.reward)
        reward = sum(rewards) if rewards else None
        return Verdict(reward, {"score": reward, **extra}, usage or None)


def _combination(
    fields: RewardFields, workshop: Workshop, executor: str | None, kwargs: Mapping[str, Any]
) -> Combination:
    if fields.function is not None:
        raise SettingsError("reward.functions: reward.function is set too; keep one")
    if not fields.functions:
        raise SettingsError("reward.functions: it is empty")
    weights = fields.weights or {}
    if spare := sorted(set(weights) - set(fields.functions)):
        raise SettingsError(f"reward.weights.{spare[0]}: there is no such function")
    parts = []
    for name, part in fields.functions.items():
        if name in weights and "weight" in part.model_fields_set:
            raise SettingsError(f"reward.weights.{name}: functions.{name}.weight is set too")
        runner = workshop.runner(
            part.function, part.executor or executor, {**kwargs, **part.kwargs}, limit=fields.limit
        )
        parts.append(Part(name, weights.get(name, part.weight), runner))
    return Combination(parts)
