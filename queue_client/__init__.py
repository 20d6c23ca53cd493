"""The thin client: trajectories in, outcomes out. Imports neither torch nor transformers."""

from __future__ import annotations

from queue_client.batch import TrajectoryBatch
from queue_client.client import RewardClient
from queue_client.errors import (
    BadTrajectory,
    ClientClosed,
    NoWorker,
    PoolUnavailable,
    QueueClientError,
    QueueFull,
    RewardUnavailable,
    WireError,
)
from queue_client.futures import RewardFuture
from queue_client.outcome import Kind, Outcome
from queue_client.rewards_tensor import reward_tensor
from queue_client.trajectory import Output, Trajectory

DISTRIBUTION = "rewardpool"

__all__ = [
    "BadTrajectory",
    "ClientClosed",
    "Kind",
    "NoWorker",
    "Outcome",
    "Output",
    "PoolUnavailable",
    "QueueClientError",
    "QueueFull",
    "RewardClient",
    "RewardFuture",
    "RewardUnavailable",
    "Trajectory",
    "TrajectoryBatch",
    "WireError",
    "reward_tensor",
]
