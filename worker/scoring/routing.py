"""From a row's `data_source` to the manager that scores it, with its functions and rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from queue_client.trajectory import Output, Trajectory
from worker.rewards import registry as builtins
from worker.rewards.errors import BadInput
from worker.scoring.clock import RowClock
from worker.scoring.decoding import Decoder
from worker.scoring.managers import Manager, is_foreign, manager_for
from worker.scoring.results import Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import (
    Attempt,
)
from worker.scoring.workshop import Workshop
from worker.settings import RewardFields, Settings, SettingsError

DEFAULT_TIMEOUT_S = 300.0
#: Further tries where the settings say nothing: what a moment may mend.
DEFAULT_RETRIES = {"upstream_error": 2, "upstream_rate_limited": 4, "sandbox_error": 2}


@dataclass(frozen=True, slots=True)
class Rules:
    """How long and how often a row is tried."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    limit_wait_s: float = math.inf
    budget_s: float = math.inf
    backoff_s: float = 1.0
    retries: Mapping[str, int] = field(default_factory=lambda: DEFAULT_RETRIES)

    @classmethod
    def of(cls, fields: RewardFields) -> Rules:
        """From the settings."""
        return cls(
            timeout_s=fields.timeout_s or default_timeout_s(fields.function),
            limit_wait_s=fields.limit_wait_s or math.inf,
            budget_s=fields.budget_s or math.inf,
            backoff_s=fields.backoff_s or 1.0,
            retries=DEFAULT_RETRIES | {str(k): n for k, n in (fields.retries or {}).items()},
        )


class Route:
    """One way of scoring: a manager, and the rules around it."""

    def __init__(self, manager: Manager, rules: Rules, decoder: Decoder) -> None:
        self.rules = rules
        self.uses_limit = manager.uses_limit
        self._manager, self._decoder = manager, decoder

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Give the row its texts, then the manager the row."""
        manager = self._manager
        if row.texts[-1] is None or manager.takes_outputs:
            await self._decoder.fill(row, all_outputs=manager.takes_outputs)
        return await manager.score(row, attempt)


class Router:
    """Finds a row's route; each is built once, those the settings name at start."""

    def __init__(self, settings: Settings, workshop: Workshop) -> None:
        self._reward, self._workshop = settings.reward, workshop
        self._by_source: dict[str | None, Route] = {}
        self._built: dict[str, Route] = {}
        self._patterns = [name for name in settings.reward.sources if set(name) & set("*?[")]
        self._default: Route | None = None
        workshop.compute_score = self._compute_score

    async def start(self) -> None:
        """Build what the settings name, so that a wrong name ends the start and not a row."""
        for source, fields in self._reward.sources.items():
            self._built[source] = self._build(with_function(source, merged(self._reward, fields)))
        if names_scorer(self._reward):
            self._default = self._build(self._reward)
        self._check_limits_are_used()

    def _check_limits_are_used(self) -> None:
        """Numbers that nobody heeds would be rows without a limit. Raises SettingsError."""
        routes = [*self._built.values(), *([self._default] if self._default else [])]
        if self._reward.manager == "rate_limited" or any(route.uses_limit for route in routes):
            return
        sections = {"reward": self._reward} | {
            f'reward.sources."{name}"': fields for name, fields in self._reward.sources.items()
        }
        for where, section in sections.items():
            for name in ("limit", "max_concurrent", "rpm", "tpm"):
                if getattr(section, name) is not None:
                    raise SettingsError(
                        f"{where}.{name}: nothing uses it; the manager is "
                        f"{section.manager or 'naive'!r}, did you mean 'rate_limited'?"
                    )

    def route(self, data_source: str | None) -> Route:
        """Return the route. Raises BadInput for a source that nothing serves."""
        if data_source is not None and not isinstance(data_source, str):
            raise BadInput(f"data_source: must be text, got a {type(data_source).__name__}")
        found = self._by_source.get(data_source)
        if found is None:
            found = self._find(data_source)
            if len(self._by_source) < 10_000:  # sources are few; hostile ones are not kept
                self._by_source[data_source] = found
        return found

    def _find(self, data_source: str | None) -> Route:
        if isinstance(data_source, str):
            if data_source in self._built:
                return self._built[data_source]
            for pattern in self._patterns:
                if fnmatchcase(data_source, pattern):
                    return self._built[pattern]
        if self._default is not None:
            return self._default
        return self._builtin(data_source)

    def _builtin(self, data_source: str | None) -> Route:
        try:
            chosen = builtins.route(data_source)
        except BadInput as error:
            own = sorted(self._reward.sources)
            raise BadInput(
                f"{error}{'; the settings add ' + ', '.join(own) if own else ''}"
            ) from None
        name = builtins.PREFIX + chosen.name
        if name not in self._built:
            update: dict[str, Any] = {"function": name, "functions": None, "weights": None}
            if is_foreign(self._reward.manager or ""):  # it asks for the function itself
                update |= {"manager": None, "kwargs": {}, "limit": None}
            fields = self._reward.model_copy(update=update)
            self._built[name] = self._build(fields)
        return self._built[name]

    def _build(self, fields: RewardFields) -> Route:
        manager = manager_for(fields, self._workshop)
        return Route(manager, Rules.of(fields), self._workshop.decoder)

    async def _compute_score(self, **given: Any) -> dict[str, Any]:
        """verl's default function, for managers of other makers: routed by data_source."""
        source, text = given.get("data_source"), given["solution_str"]
        row = Row(
            Trajectory(
                outputs=[Output(text=text)],
                data_source=source,
                ground_truth=given.get("ground_truth"),
                extra_info=given.get("extra_info") or {},
            )
        )
        route = self._builtin(source)
        clock = RowClock(route.rules.timeout_s, route.rules.limit_wait_s)
        found = await route.score(row, Attempt(clock, self._workshop.limits))
        return {**found.extra, "score": found.reward}


def default_timeout_s(function: str | None) -> float:
    """How long a row may run where the settings say nothing: some built-ins know better."""
    if function is not None and function.startswith(builtins.PREFIX):
        return builtins.builtin(function).timeout_s or DEFAULT_TIMEOUT_S
    return DEFAULT_TIMEOUT_S


def names_scorer(fields: RewardFields) -> bool:
    """Whether these settings say by themselves what scores a row."""
    manager = fields.manager or ""
    return bool(fields.function or fields.functions or manager == "reward_model" or ":" in manager)


def with_function(source: str, fields: RewardFields) -> RewardFields:
    """A source that names no function keeps the built-in one of its name. Raises SettingsError."""
    if names_scorer(fields):
        return fields
    try:
        chosen = builtins.route(source)
    except BadInput as error:
        raise SettingsError(f'reward.sources."{source}".function: none is set; {error}') from None
    return fields.model_copy(update={"function": builtins.PREFIX + chosen.name})


def merged(reward: RewardFields, source: RewardFields) -> RewardFields:
    """A source's settings over the general ones; a function's own settings go with it."""
    given = {name: getattr(source, name) for name in source.model_fields_set}
    inherited = {name: getattr(reward, name) for name in RewardFields.model_fields}
    if given.keys() & {"function", "functions"}:
        for name in ("function", "functions", "weights", "kwargs", "executor"):
            inherited.pop(name)
    return RewardFields.model_validate({**inherited, **given})
