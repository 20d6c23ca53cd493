"""Which row starts next: places, suspects in a widening window, last starts alone."""

from __future__ import annotations

import pytest

from worker.pool import places as module
from worker.pool.flight import Flight
from worker.pool.places import FIRST_WINDOW, WIDENING, Places


class Starts:
    def __init__(self, concurrency: int = 32, max_attempts: int = 3) -> None:
        self.rows: list[tuple[str, int]] = []
        self.places = Places(concurrency, max_attempts=max_attempts, start=self.start)

    def start(self, flight: Flight, row: int) -> None:
        self.rows.append((flight.job_id, row))

    def end(self, flight: Flight, row: int) -> None:
        self.places.done(flight, row)

    def add(self, job_id: str, rows: int, starts: int = 0) -> Flight:
        flight = Flight(job_id, "q", "run", rows=rows, open_rows=set(range(rows)))
        flight.starts = dict.fromkeys(range(rows), starts)
        self.places.add(flight, list(range(rows)))
        return flight


def test_no_more_rows_start_than_there_are_places() -> None:
    starts = Starts(concurrency=4)
    flight = starts.add("a", 6)
    assert starts.rows == [("a", n) for n in range(4)]
    assert starts.places.free == -2

    starts.end(flight, 2)

    assert starts.rows[4:] == [("a", 4)]
    assert starts.places.running == 4


def test_suspects_start_in_a_window_that_widens_as_they_survive() -> None:
    starts = Starts(concurrency=128)
    flight = starts.add("suspect", 100, starts=1)
    assert len(starts.rows) == FIRST_WINDOW

    for row in range(FIRST_WINDOW):
        starts.end(flight, row)

    assert len(starts.rows) == FIRST_WINDOW + (1 + WIDENING) * FIRST_WINDOW
    fresh = starts.add("fresh", 8)
    assert starts.rows[-8:] == [("fresh", n) for n in range(8)]
    assert fresh.open_rows


def test_a_last_start_is_made_alone() -> None:
    starts = Starts()
    running = starts.add("running", 2)
    last = starts.add("last", 2, starts=2)
    starts.add("later", 3)
    assert starts.rows == [("running", 0), ("running", 1)]

    starts.end(running, 0)
    starts.end(running, 1)
    assert starts.rows[2:] == [("last", 0)]
    starts.end(last, 0)
    assert starts.rows[3:] == [("last", 1)]
    starts.end(last, 1)

    assert starts.rows[4:] == [("later", n) for n in range(3)]


def test_a_last_start_does_not_wait_for_slow_rows_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = Starts()
    starts.add("slow", 1)
    starts.add("last", 1, starts=2)
    assert starts.rows == [("slow", 0)]

    monkeypatch.setattr(module, "LONE_WAIT_S", 0.0)
    starts.places.pump()

    assert starts.rows == [("slow", 0), ("last", 0)]


def test_with_two_starts_allowed_the_second_is_alone() -> None:
    starts = Starts(max_attempts=2)
    starts.add("second", 3, starts=1)
    assert starts.rows == [("second", 0)]


def test_rows_that_have_an_outcome_do_not_start() -> None:
    starts = Starts(concurrency=1)
    flight = starts.add("a", 3)
    flight.open_rows.discard(1)

    starts.end(flight, 0)

    assert starts.rows == [("a", 0), ("a", 2)]


def test_a_dropped_flight_waits_no_more() -> None:
    starts = Starts(concurrency=1)
    first, second = starts.add("a", 1), starts.add("b", 5)
    starts.places.drop(second)
    starts.end(first, 0)
    assert starts.rows == [("a", 0)]
    assert starts.places.free == 1


def test_a_closed_place_starts_nothing() -> None:
    starts = Starts()
    starts.places.close()
    starts.add("a", 3)
    assert starts.rows == []
