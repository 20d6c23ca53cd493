"""Workers and producers for the pool's tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pool_fixtures import crew, lasting, new_producer, producer, workers

__all__ = ["crew", "lasting", "new_producer", "producer", "workers"]
