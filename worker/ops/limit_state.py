"""Every limit with its last hour, read in one round trip: for pages and scrapes that come often.

Names are found by a scan of the key space, so they are remembered for a while.
"""

from __future__ import annotations

import logging
import threading
import time

import redis

from limiter import Minute, Usage, replies, scripts
from limiter.keys import SETTINGS_PATTERN, Keys, name_of
from limiter.usage import read_history, read_usage
from worker.ops.reading import Command, read
from worker.ops.rq_state import text

logger = logging.getLogger(__name__)

NAMES_S = 30.0
SCAN_COUNT = 2_000


class LimitReader:
    """Reads all limits over one connection; safe in threads."""

    def __init__(self, connection: redis.Redis) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._names: tuple[str, ...] = ()
        self._looked_at = -NAMES_S

    def read(self) -> list[tuple[Usage, list[Minute]]]:
        """Return how every limit stands and what happened in its last hour, by name."""
        names = self._known_names()
        if not names:
            return []
        script = scripts.load("usage")
        commands: list[Command] = []
        for name in names:
            keys = Keys.of(name)
            commands.append(("EVAL", script.text, len(keys.all), *keys.all))
            commands.append(("HGETALL", keys.history))
        answers = read(self._connection, commands)
        found = []
        for name, stands, history in zip(names, answers[0::2], answers[1::2], strict=True):
            if isinstance(stands, list) and not replies.lacks_settings(stands):
                usage = read_usage(name, stands)
                minutes = read_history(history, usage) if isinstance(history, dict) else []
                found.append((usage, minutes))
            elif isinstance(stands, Exception):  # no right to run scripts, for one
                logger.warning("limit unreadable limit=%s error=%s", name, stands)
        return found

    def _known_names(self) -> tuple[str, ...]:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= NAMES_S or not self._names:
                keys = self._connection.scan_iter(match=SETTINGS_PATTERN, count=SCAN_COUNT)
                self._names = tuple(sorted({name_of(text(key)) for key in keys}))
                self._looked_at = now
            return self._names
