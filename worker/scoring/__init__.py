"""Scoring: what happens to a decoded batch, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.scoring.engine import ScoringEngine
    from worker.scoring.request import ScoreRequest

__all__ = ["ScoreRequest", "ScoringEngine"]


def __getattr__(name: str) -> Any:
    """Import on first use: helper processes start from this package and stay light."""
    if name == "ScoringEngine":
        from worker.scoring.engine import ScoringEngine

        return ScoringEngine
    if name == "ScoreRequest":
        from worker.scoring.request import ScoreRequest

        return ScoreRequest
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
