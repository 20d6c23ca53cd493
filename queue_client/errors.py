"""Everything the client can raise.

QueueClientError
├── BadTrajectory        a trajectory is malformed: says the field, the value and the row
├── WireError            bytes are not a payload this version reads
│   └── WireVersionError the other side runs another release
├── RewardUnavailable    rewards(on_failure="raise") met failed rows: names them
├── QueueFull            back-pressure: too much in flight and the caller chose not to wait
├── PoolUnavailable      Redis cannot be reached
│   └── NoWorker         Redis is there, nobody listens on the queue
└── ClientClosed         the client was closed
"""

from __future__ import annotations

from typing import Any


class QueueClientError(Exception):
    """The root of the client's errors."""


class BadTrajectory(QueueClientError, ValueError):
    """A trajectory cannot be padded or sent; mend the named field."""


class WireError(QueueClientError, ValueError):
    """Bytes cannot be decoded: another version, truncated, or hostile. Drop them."""


class WireVersionError(WireError):
    """A message of another wire version: sound, perhaps, to another release than this one."""


class RewardUnavailable(QueueClientError):
    """Some rows have no reward; `rows` holds their positions, `kinds` why."""

    def __init__(self, rows: list[int], kinds: list[str]) -> None:
        shown = ", ".join(
            f"{row} ({kind})" for row, kind in list(zip(rows, kinds, strict=True))[:8]
        )
        more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
        super().__init__(f"{len(rows)} rows have no reward: {shown}{more}")
        self.rows, self.kinds = rows, kinds

    def __reduce__(self) -> tuple[Any, ...]:
        """Trainers raise it across processes; the message is made of the fields."""
        return type(self), (self.rows, self.kinds)


class QueueFull(QueueClientError):
    """More is in flight than `max_in_flight` allows; wait for outcomes, then submit again."""


class PoolUnavailable(QueueClientError, ConnectionError):
    """Redis cannot be reached; nothing was handed over."""


class NoWorker(PoolUnavailable):
    """No worker listens on the queue; start one with `rewardpool worker QUEUE`."""


class ClientClosed(QueueClientError):
    """The client was closed while a call was pending."""
