"""A long rollout file streams: its memory is bounded and does not grow with its lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.chaos
def test_a_hundred_thousand_lines_need_no_more_memory_than_ten_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    sys.modules.pop("score", None)
    import score

    short, long = (score.measure(tmp_path, rows) for rows in (10_000, 100_000))

    assert long["peak_mib"] <= 300
    assert long["peak_mib"] <= 1.2 * short["peak_mib"]
