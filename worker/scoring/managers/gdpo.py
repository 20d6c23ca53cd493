"""GDPO's manager: several rewards for a row, each reported for the advantage to use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from worker.rewards.errors import RewardFailure
from worker.scoring.managers.combined import Scorer, scorer_of
from worker.scoring.results import BadScore, Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.workshop import Workshop

KWARGS = frozenset({"gdpo_reward_keys", "experiment_name"})


class GdpoManager:
    """Every reward must be there in every row: a missing one fails the row, it is never 0."""

    def __init__(self, scorer: Scorer, keys: list[str], experiment_name: str | None) -> None:
        self._scorer, self._keys, self._experiment_name = scorer, keys, experiment_name
        self.takes_outputs, self.uses_limit = scorer.takes_outputs, scorer.uses_limit

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self:
        """From the settings: the rewards are the functions' names, or `gdpo_reward_keys`."""
        keys = fields.kwargs.get("gdpo_reward_keys") or list(fields.functions or ())
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise SettingsError(f"reward.kwargs.gdpo_reward_keys: a list of names, got {keys!r}")
        scorer = scorer_of(fields, workshop, own_kwargs=KWARGS)
        return cls(scorer, keys, fields.kwargs.get("experiment_name"))

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Score and check that each reward is a number. Raises BadScore that names it."""
        found = await self._scorer.score(self._named(row), attempt)
        for key in self._keys:
            value = found.extra.get(key)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._missing(key, value)
            found.extra[key] = float(value)
        return found

    def _missing(self, key: str, value: Any) -> RewardFailure:
        return BadScore(f"{key}: one of the rewards is {value!r}, not a number")

    def _named(self, row: Row) -> Row:
        if self._experiment_name is not None:
            row.added["experiment_name"] = self._experiment_name
        return row
