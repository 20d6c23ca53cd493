"""What one row counts as, and what travels of it."""

from __future__ import annotations

import math

import msgpack
import pytest

from queue_client import Kind, Outcome, Output, Trajectory
from queue_client.wire import decode_outcome
from worker.pool.flight import Flight
from worker.pool.rows import encode_row


def encoded(outcome: Outcome, source: str | None = "gsm8k") -> list[object]:
    row = Trajectory(outputs=[Output(response_ids=[1, 2, 3]), Output(text="x")], data_source=source)
    return encode_row(Flight("p_j", "q", "r", rows=1, trajectories=[row]), 0, outcome)


def test_a_row_counts_under_the_smallest_bound_that_holds_it() -> None:
    row = encoded(Outcome.scored(0.25, wait_s=0.01, run_s=700.0))
    assert row[2:] == ["gsm8k|scored", ["wait_le_0.01", "run_le_inf", "reward_le_0.25"],
                       0.25, 10, 700_000, 3]  # fmt: skip


def test_a_failed_row_counts_by_its_kind_and_without_a_reward() -> None:
    row = encoded(Outcome.failed(Kind.TIMEOUT, "late"), source=None)
    assert row[2] == "-|timeout"
    assert row[3] == ["wait_le_0.01", "run_le_0.01"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_no_number_breaks_the_sums(value: float) -> None:
    row = encoded(Outcome.scored(1.0, wait_s=value, run_s=value))
    assert all(math.isfinite(number) for number in row[4:])


def test_an_outcome_that_cannot_travel_is_a_failed_one() -> None:
    row = encoded(Outcome.scored(1.0, {"handle": object()}, uid="u"))
    travelled = decode_outcome(row[1])
    assert travelled.kind is Kind.BAD_SCORE
    assert travelled.uid == "u"
    assert "object" in travelled.message


@pytest.mark.parametrize("source", ["a|b", "x" * 500, "\ud800", "", "naïve/数"])
def test_any_source_makes_a_label(source: str) -> None:
    label = encoded(Outcome.scored(1.0), source)[2]
    assert isinstance(label, str)
    assert label.count("|") == 1
    assert len(label) <= 64 + len("|scored")
    assert msgpack.packb(label, use_bin_type=False)
