"""Workers, their scheduler and producers find the primary through Sentinel."""

from __future__ import annotations

from pathlib import Path

from pool_sentinel import Watched, check_failover


def test_a_dead_primary_costs_no_row_where_sentinel_watches(tmp_path: Path) -> None:
    check_failover(tmp_path, Watched.crash)
