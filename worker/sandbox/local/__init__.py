"""Running programs on this machine, walled off from it."""

from worker.sandbox.local.bounds import Bounds
from worker.sandbox.local.runner import LocalRunner

__all__ = ["Bounds", "LocalRunner"]
