"""How long Redis has been away, as one thread sees it."""

from __future__ import annotations

import logging
import time

from queue_client.connecting import masked

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Outage:
    """Counts failures in a row, says how long to pause, logs the beginning and the end."""

    def __init__(self, role: str, url: str, allowed_s: float) -> None:
        self._role, self._url, self._allowed_s = role, url, allowed_s
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self.count = 0

    def failed(self, error: BaseException) -> float:
        """Note a failure; return the seconds to pause before the next try."""
        if self._since is None:
            self._since = time.monotonic()
            self.count += 1
            logger.warning(
                "connection lost role=%s redis=%s error=%s: %s",
                self._role,
                masked(self._url),
                type(error).__name__,
                error,
            )
        pause_s, self._pause_s = self._pause_s, min(LONGEST_PAUSE_S, self._pause_s * 2)
        return pause_s

    @property
    def too_long(self) -> bool:
        """Whether it lasts longer than the client was told to bear."""
        return self._since is not None and time.monotonic() - self._since > self._allowed_s

    def over(self) -> bool:
        """Note a success; True if it ended an outage."""
        if self._since is None:
            return False
        logger.info(
            "connection restored role=%s away_s=%.1f", self._role, time.monotonic() - self._since
        )
        self._since, self._pause_s = None, FIRST_PAUSE_S
        return True
