"""Running and waiting are counted apart."""

from __future__ import annotations

import math

import pytest

from worker.scoring import clock as clock_module
from worker.scoring.clock import RowClock


@pytest.fixture
def now(monkeypatch):
    time = [100.0]
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: time[0])
    return time


def test_waiting_for_a_limit_is_not_run_time(now):
    clock = RowClock(run_limit_s=5, wait_limit_s=60)
    clock.start()
    now[0] += 2
    with clock.waiting():
        now[0] += 30
        assert clock.left_s() == 30
    now[0] += 1
    assert clock.left_s() == 2
    clock.stop()

    assert (clock.run_s, clock.wait_s) == (3, 30)


def test_a_wait_before_the_run_is_counted_and_a_stopped_clock_stands_still(now):
    clock = RowClock(run_limit_s=5, wait_limit_s=60)
    assert clock.left_s() == math.inf
    with clock.waiting():
        now[0] += 10
    now[0] += 100
    clock.start()
    now[0] += 1
    clock.stop()
    now[0] += 100

    assert (clock.run_s, clock.wait_s) == (1, 10)
    assert clock.wait_left_s() == 50


def test_two_waits_at_once_count_once(now):
    clock = RowClock(run_limit_s=5, wait_limit_s=60)
    clock.start()
    with clock.waiting(), clock.waiting():
        now[0] += 4

    assert clock.wait_s == 4
