"""The managers by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from worker.scoring.managers.naive import NaiveManager
from worker.scoring.results import Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.routing import Workshop


class Manager(Protocol):
    """Scores one row; `takes_outputs` asks for the text of every output."""

    takes_outputs: bool

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Return the row's reward. Raises RewardFailure."""
        ...


Build = Callable[[RewardFields, "Workshop"], Manager]

MANAGERS: dict[str, Build] = {
    "naive": NaiveManager.build,
}


def manager_for(
    fields: RewardFields, workshop: Workshop, default_score: Callable[..., Any]
) -> Manager:
    """Build the manager that the settings name. Raises SettingsError with the nearest name."""
    name = fields.manager or "naive"
    build = MANAGERS.get(name)
    if build is None:
        near = difflib.get_close_matches(name, MANAGERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(MANAGERS)}"
        raise SettingsError(f"reward.manager: there is no {name!r}; {hint}")
    return build(fields, workshop)
