"""What tests of scoring share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from queue_client import Output, Trajectory
from worker.scoring import ScoreRequest

FUNCTIONS = Path(__file__).with_name("scoring_functions.py")


def request(text: str | None = "", /, *, attempt: int = 1, **fields: Any) -> ScoreRequest:
    """A row of one output with this text; `deadline` and `queued_s` go to the request."""
    given = {name: fields.pop(name) for name in ("deadline", "queued_s") if name in fields}
    outputs = fields.pop("outputs", [Output(text=text)])
    return ScoreRequest(Trajectory(outputs=outputs, **fields), attempt=attempt, **given)


def helper_processes() -> list[psutil.Process]:
    """Every process below this one that the engine started."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "worker.scoring.helpers.nursery" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
