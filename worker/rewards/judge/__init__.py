"""A model that rewards other models' text, behind OpenAI-compatible `/chat/completions`."""

from worker.rewards.judge.scorer import compute_score

__all__ = ["compute_score"]
