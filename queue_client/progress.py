"""A line on the terminal that says how far the scoring is."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TextIO

from queue_client.futures import RewardFuture
from queue_client.outcome import Outcome

REDRAW_S = 0.1
TICK_S = 0.25  # how often a waiting line moves
LINE_EVERY_S = 10.0  # where there is no terminal
WIDTH = 24


class Progress:
    """Done, failed, rate and mean reward of one call; draws on standard error. Thread-safe."""

    def __init__(self, total: int, *, stream: TextIO | None = None) -> None:
        self.total = total
        self.done = self.failed = self.scored = 0
        self._sum = 0.0
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._drawn_at = self._began
        self._lock = threading.Lock()

    def add(self, outcome: Outcome) -> None:
        """Count an outcome, and draw if the last drawing is a while ago."""
        with self._lock:
            self.done += 1
            if not outcome.ok:
                self.failed += 1
            elif outcome.reward is not None:
                self.scored += 1
                self._sum += outcome.reward
        self.tick()

    def watch(self, futures: Iterable[RewardFuture]) -> None:
        """Count each future's outcome when it is there."""
        for future in futures:
            future.add_done_callback(self._count)

    def _count(self, future: Future[Outcome]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.add(future.result())

    def tick(self) -> None:
        """Draw if the last drawing is a while ago."""
        every_s = REDRAW_S if self._terminal else LINE_EVERY_S
        with self._lock:
            if time.monotonic() - self._drawn_at >= every_s:
                self._draw()

    def close(self) -> None:
        """Draw the last state and leave the line."""
        with self._lock:
            self._draw(end="\n")

    @property
    def mean(self) -> float:
        """Mean reward so far; NaN without any."""
        return self._sum / self.scored if self.scored else math.nan

    def line(self) -> str:
        """Return what is drawn."""
        elapsed_s = max(time.monotonic() - self._began, 1e-9)
        rate = self.done / elapsed_s
        filled = WIDTH * self.done // self.total if self.total else WIDTH
        left = f"{(self.total - self.done) / rate:.0f} s left" if rate else "waiting"
        if self.done >= self.total:
            left = f"{elapsed_s:.1f} s"
        bar = "#" * filled + "." * (WIDTH - filled)
        mean = "-" if math.isnan(self.mean) else f"{self.mean:.3f}"
        return (
            f"[{bar}] {self.done}/{self.total} failed {self.failed} "
            f"{rate:.1f}/s mean reward {mean} {left}"
        )

    def _draw(self, end: str = "") -> None:
        self._drawn_at = time.monotonic()
        line = f"\r{self.line()}\x1b[K{end}" if self._terminal else f"{self.line()}\n"
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):
            return  # a closed stream ends no scoring


def wait_for(future: RewardFuture, progress: Progress | None) -> Outcome:
    """Wait for one outcome; the line goes on moving meanwhile."""
    while progress is not None and not future.done():
        try:
            return future.result(TICK_S)
        except TimeoutError:
            progress.tick()
    return future.result()
