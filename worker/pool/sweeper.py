"""The sweep: jobs of dead workers go back to their queue, whoever is left finds them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import redis
from redis.exceptions import RedisError

from queue_client import protocol
from worker.pool import names
from worker.pool.scripts import Argument, Script

logger = logging.getLogger("rewardpool.pool")

MOST = 1_000  # executions a sweep looks at
RETRY_S = 1.0

_SWEEP = Script("pool_sweep")


class Sweeper(threading.Thread):
    """Sweeps each queue every `sweep_s`, shared with the other workers through Redis' clock.

    `beat_s` is how long those who live are given to say so when nobody has swept for long: after
    an outage everybody's heartbeat is overdue, and nobody is dead.
    """

    def __init__(
        self, connection: redis.Redis, queues: Sequence[str], *, sweep_s: float, beat_s: float
    ) -> None:
        super().__init__(name="sweep", daemon=True)
        self._connection, self._queues = connection, queues
        self._sweep_s, self._grace_s = sweep_s, 2 * beat_s + 1
        self._stopping = threading.Event()
        self.put_back = 0

    def stop(self) -> None:
        """Sweep no more."""
        self._stopping.set()

    def run(self) -> None:
        """Sweep until stopped."""
        while not self._stopping.is_set():
            self._stopping.wait(self._sweep_all())
        self._connection.close()

    def _sweep_all(self) -> float:
        """Sweep each queue, whatever happens to another. Returns the pause that follows."""
        pause_s = self._sweep_s
        for queue in self._queues:
            try:
                if self.sweep(queue) == "WAIT":
                    pause_s = self._grace_s + 0.1
            except (RedisError, OSError) as error:
                logger.warning("sweep failed queue=%s error=%s", queue, error)
                pause_s = min(pause_s, RETRY_S)
            except Exception:
                logger.exception("sweep failed queue=%s", queue)
        return pause_s

    def sweep(self, queue: str) -> str:
        """Sweep one queue now. Returns SWEPT, NOT_YET or WAIT."""
        keys = [
            names.wip_key(queue),
            names.queue_key(queue),
            names.intermediate_key(queue),
            names.registry_key("finished", queue),
            names.registry_key("failed", queue),
            names.registry_key("canceled", queue),
            names.listeners_key(queue),
            names.WORKERS,
            f"{protocol.PREFIX}:swept:{queue}",
        ]
        parked_s = max(2, int(self._sweep_s))
        args: list[Argument] = [names.RQ_KEY_PREFIX, int(self._sweep_s * 1000), parked_s, MOST]
        args.append(int(self._grace_s * 1000))
        answer = _SWEEP(self._connection, keys, args)
        word = answer[0].decode()
        if word == "SWEPT" and (answer[1] or answer[2]):
            self.put_back += answer[1]
            logger.warning(
                "queue swept queue=%s put_back=%d dropped=%d", queue, answer[1], answer[2]
            )
        return str(word)
