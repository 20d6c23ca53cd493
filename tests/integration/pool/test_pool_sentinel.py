"""Workers, their scheduler and producers find the primary through Sentinel."""

from __future__ import annotations

from pathlib import Path

from pool_sentinel import Watched, check_failover, worker_of


def test_a_dead_primary_costs_no_row_where_sentinel_watches(tmp_path: Path) -> None:
    check_failover(tmp_path, Watched.crash)


def test_limits_behind_sentinel_need_an_address(tmp_path: Path) -> None:
    limit = {"REWARDPOOL_LIMITS__JUDGE__MAX_CONCURRENT": "4"}
    with Watched(tmp_path) as watched, worker_of(watched, tmp_path, **limit) as worker:
        assert worker.wait(60) == 2
    said = (tmp_path / "worker.log").read_text()
    assert "rewardpool: redis.url: needed" in said
    assert "judge" in said
    assert "Traceback" not in said
