"""An engine with settings of the test's own, always closed."""

from __future__ import annotations

from typing import Any

import pytest
from scoring_support import FUNCTIONS

from worker.scoring import ScoringEngine
from worker.settings import settings_from


@pytest.fixture
async def make_engine():
    """`await make_engine(reward={...}, worker={...})`; a bare function is one of FUNCTIONS."""
    made: list[ScoringEngine] = []

    async def make(**sections: Any) -> ScoringEngine:
        reward = dict(sections.pop("reward", {}))
        if ":" not in (name := reward.get("function", ":")):
            reward["function"] = f"{FUNCTIONS}:{name}"
        engine = ScoringEngine(settings_from({**sections, "reward": reward}))
        made.append(engine)
        await engine.start()
        return engine

    yield make
    for engine in made:
        await engine.close()
