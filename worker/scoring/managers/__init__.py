"""Reward managers: how a row's functions are called and what their rewards come to."""

from worker.scoring.managers.registry import Manager, is_foreign, manager_for

__all__ = ["Manager", "is_foreign", "manager_for"]
