"""A model that rewards other models' text, behind OpenAI-compatible `/chat/completions`."""

from worker.rewards.judge.scorer import check_arguments, compute_score

__all__ = ["check_arguments", "compute_score"]
