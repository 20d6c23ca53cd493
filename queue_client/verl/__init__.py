"""The drop-in for verl: a reward manager, a reward function, and scoring inside agent loops.

Named in verl's configuration as `pkg://queue_client.verl`. verl is not imported.
"""

from __future__ import annotations

from queue_client.verl.function import compute_score
from queue_client.verl.manager import QueueRewardManager
from queue_client.verl.options import VerlOptions
from queue_client.verl.outputs import score_outputs
from queue_client.verl.results import NoReward

__all__ = ["NoReward", "QueueRewardManager", "VerlOptions", "compute_score", "score_outputs"]
