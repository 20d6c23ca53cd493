"""The plain managers: what the functions say is the reward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from worker.scoring.managers.combined import Scorer, scorer_of
from worker.scoring.results import Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt
from worker.settings import RewardFields

if TYPE_CHECKING:
    from worker.scoring.workshop import Workshop


class NaiveManager:
    """Calls the function, or the weighted functions, once for each row."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.takes_outputs, self.uses_limit = scorer.takes_outputs, scorer.uses_limit

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self:
        """From the settings."""
        return cls(scorer_of(fields, workshop))

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Return the functions' own verdict."""
        return await self._scorer.score(row, attempt)


class RemoteManager(NaiveManager):
    """Runs every function in a killable process, whatever it looks like."""

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self:
        """From the settings."""
        return cls(scorer_of(fields, workshop, executor="process"))
