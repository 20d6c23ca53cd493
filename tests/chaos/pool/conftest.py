"""The same workers and producers as in the pool's integration tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "pool"))

from pool_fixtures import crew, lasting, new_producer, producer, workers

__all__ = ["crew", "lasting", "new_producer", "producer", "workers"]
