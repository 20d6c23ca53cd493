"""The plain manager: one function, or a weighted sum of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from worker.scoring.results import Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt, Runner
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.routing import Workshop


class NaiveManager:
    """Calls the function once for each row."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.takes_outputs = runner.plan.takes_outputs

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self:
        """From the settings."""
        if fields.function is None:
            raise SettingsError("reward.function: none is set")
        return cls(workshop.runner(fields.function, fields.executor, fields.kwargs))

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Return the function's own verdict."""
        return await self._runner.run(row, attempt)
