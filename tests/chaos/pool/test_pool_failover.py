"""A failover by command, with the old primary alive and taking writes for seconds more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pool_sentinel import Watched, check_failover


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_failover_by_command_costs_no_row(tmp_path: Path) -> None:
    check_failover(tmp_path, Watched.order)
