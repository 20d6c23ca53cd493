"""A line that says how far the scoring is."""

from __future__ import annotations

import io

from queue_client import Kind, Outcome
from queue_client.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_says_done_failed_rate_and_mean():
    progress = Progress(4, stream=io.StringIO())
    for outcome in (Outcome.scored(1.0), Outcome.scored(0.0), Outcome.failed(Kind.TIMEOUT, "")):
        progress.add(outcome)
    line = progress.line()
    assert "3/4 failed 1" in line
    assert "mean reward 0.500" in line
    assert "/s" in line


def test_a_terminal_gets_one_line_that_is_redrawn():
    stream = Terminal()
    progress = Progress(2, stream=stream)
    progress._drawn_at = -1.0
    progress.add(Outcome.scored(1.0))
    progress.add(Outcome.scored(1.0))
    progress.close()
    assert stream.getvalue().startswith("\r")
    assert stream.getvalue().endswith("\n")
    assert "2/2" in stream.getvalue()


def test_elsewhere_lines_are_rare():
    stream = io.StringIO()
    progress = Progress(1000, stream=stream)
    for _ in range(1000):
        progress.add(Outcome.scored(1.0))
    progress.close()
    assert stream.getvalue().count("\n") == 1
    assert "1000/1000" in stream.getvalue()


def test_a_closed_stream_ends_no_scoring():
    stream = Terminal()
    progress = Progress(1, stream=stream)
    stream.close()
    progress.add(Outcome.scored(1.0))
    progress.close()


def test_nothing_to_do_is_done():
    assert "0/0" in Progress(0, stream=io.StringIO()).line()
