"""The managers by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING

from worker.scoring.managers.combined import Scorer
from worker.scoring.managers.dapo import DapoManager
from worker.scoring.managers.foreign import ForeignManager
from worker.scoring.managers.gdpo import GdpoManager
from worker.scoring.managers.naive import NaiveManager, RemoteManager
from worker.scoring.managers.rate_limited import RateLimitedManager
from worker.scoring.managers.reward_model import RewardModelManager
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.workshop import Workshop

Manager = Scorer
Build = Callable[[RewardFields, "Workshop"], Manager]

MANAGERS: dict[str, Build] = {
    "naive": NaiveManager.build,
    "dapo": DapoManager.build,
    "gdpo": GdpoManager.build,
    "rate_limited": RateLimitedManager.build,
    "remote": RemoteManager.build,
    "reward_model": RewardModelManager.build,
}


def manager_for(fields: RewardFields, workshop: Workshop) -> Manager:
    """Build the manager that the settings name. Raises SettingsError with the nearest name."""
    name = fields.manager or "naive"
    if is_foreign(name):
        return ForeignManager.build(fields, workshop)
    build = MANAGERS.get(name)
    if build is None:
        near = difflib.get_close_matches(name, MANAGERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(MANAGERS)}"
        raise SettingsError(f"reward.manager: there is no {name!r}; {hint}, or file.py:Class")
    return build(fields, workshop)


def is_foreign(name: str) -> bool:
    """Whether a manager is named by where it stands: `file.py:Class`, `package.module:Class`."""
    return ":" in name
