"""A client's link in this process: made at first use, left to the parent after a fork."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable

from queue_client.errors import ClientClosed
from queue_client.link import Link

_ties: weakref.WeakSet[Tie] = weakref.WeakSet()


class Tie:
    """Holds the link; every process has its own."""

    def __init__(self, make: Callable[[], Link]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self.link: Link | None = None
        _ties.add(self)

    def get(self) -> Link:
        """Return this process' link; the first call connects. Raises ClientClosed."""
        link = self.link
        if link is not None and not self._closed:
            return link
        with self._lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            if self.link is None:
                self.link = self._make()
            return self.link

    def close(self) -> None:
        """Close the link and wait for its threads."""
        with self._lock:
            self._closed = True
            link = self.link
        if link is not None:
            link.close()

    def let_go(self) -> None:
        """Close without waiting: the client itself is gone."""
        self._closed = True
        if self.link is not None:
            self.link.shut()

    def forked(self) -> None:
        """In a forked child: begin anew; calls made before belong to the parent."""
        self._lock = threading.Lock()
        link, self.link = self.link, None
        if link is not None:
            for future in link.flight.orphans():
                future.orphan()


def _after_fork_in_child() -> None:
    for tie in list(_ties):
        tie.forked()


def _close_all() -> None:
    """At the interpreter's end: workers need not score for a producer that is gone."""
    for tie in list(_ties):
        tie.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
