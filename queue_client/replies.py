"""The reading thread: outcomes from the producer's reply stream, as workers write them."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import redis

from queue_client.connecting import ReplyTooLarge, block_ms, disconnect
from queue_client.errors import WireError, WireVersionError
from queue_client.flight import Job
from queue_client.outage import Outage
from queue_client.outcome import Kind, Outcome
from queue_client.protocol import MAX_OUTCOME_BYTES, MAX_ROWS
from queue_client.scripts import Script
from queue_client.wire import decode_outcome

if TYPE_CHECKING:
    from queue_client.link import Link

logger = logging.getLogger(__name__)

SIZES = Script("client_sizes")
ENTRIES = 256  # read at once
WEIGHED = 64
MAX_ENTRY_BYTES = 4 * MAX_OUTCOME_BYTES
MAX_MESSAGE = 2000  # characters of a failure's reason
IDLE_S = 1.0


class Reader:
    """Reads one stream for all futures of a process; resumes from the last entry after a break."""

    def __init__(self, link: Link, client: redis.Redis) -> None:
        self._link, self._client = link, client
        self._stream = link.reply_key
        self._block_ms = block_ms(client)
        self.last = "0-0"
        self.finished = threading.Event()
        self._outage = Outage("replies", link.options.url, link.options.outage_s)

    @property
    def outages(self) -> int:
        """Connection losses so far."""
        return self._outage.count

    def run(self) -> None:
        """Read until the link closes; nothing that arrives ends this loop."""
        while not self._link.closing.is_set():
            if not self._link.flight.occupied.wait(IDLE_S) or self._link.closing.is_set():
                continue
            try:
                self._read()
                self._outage.over()
            except ReplyTooLarge:
                self._guarded(self._step_over)
            except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                self._bear(error)
            except redis.ResponseError as error:
                self._guarded(lambda error=error: self._mend(error))
            except Exception:
                logger.exception("reply not understood stream=%s", self._stream)
                self._link.closing.wait(0.1)
        disconnect(self._client)
        self.finished.set()

    def _read(self) -> None:
        client: Any = self._client
        reply = client.execute_command(
            "XREAD", "COUNT", ENTRIES, "BLOCK", self._block_ms, "STREAMS", self._stream, self.last
        )
        for _, entries in reply or ():
            for entry_id, fields in entries:
                self.last = entry_id.decode()
                self._entry(fields or {})

    def _entry(self, fields: dict[bytes, bytes]) -> None:
        job_id = fields.pop(b"job", b"")[:200].decode("utf-8", "replace")
        job = self._link.flight.get(job_id)
        if job is None:
            self._link.flight.late += 1
            return
        for name, value in fields.items():
            if name.isdigit() and len(name) <= len(str(MAX_ROWS)):
                self.take(job, int(name), value)
        if b"failed" in fields:
            self._end(job, fields)
        elif b"done" in fields and job.left:
            job.checked_at = 0.0  # something of it was lost: look it up at once

    def take(self, job: Job, row: int, value: bytes) -> bool:
        """Resolve a row with an encoded outcome; False if it cannot be read.

        One of another wire version fails its row: nobody will write it again in ours.
        """
        try:
            if len(value) > MAX_OUTCOME_BYTES:
                raise WireError(f"outcome has {len(value)} bytes, at most {MAX_OUTCOME_BYTES}")
            outcome = decode_outcome(value)
        except WireVersionError as error:
            logger.warning("outcome of another version job=%s row=%d: %s", job.id, row, error)
            message = f"the outcome was not read: {error}"
            outcome = Outcome.failed(Kind.WORKER_LOST, message, retryable=False)
        except WireError as error:
            logger.warning("outcome not readable job=%s row=%d error=%s", job.id, row, error)
            return False
        self._link.flight.settle(job.id, row, outcome)
        return True

    def _end(self, job: Job, fields: dict[bytes, bytes]) -> None:
        said = fields[b"failed"][:32].decode("utf-8", "replace")
        kind = Kind(said) if said in set(Kind) else Kind.WORKER_LOST
        message = fields.get(b"message", b"")[:MAX_MESSAGE].decode("utf-8", "replace")
        for row in job.open_rows:
            self._link.flight.settle(job.id, row, Outcome.failed(kind, message))

    def _guarded(self, repair: Any) -> None:
        try:
            repair()
        except (redis.RedisError, OSError) as error:
            self._bear(error)

    def _bear(self, error: Exception) -> None:
        """Pause; what the stream would have brought is looked up meanwhile by the sender."""
        self._link.closing.wait(self._outage.failed(error))

    def _step_over(self) -> None:
        """Read on one by one, past entries that no worker of ours would write."""
        for entry_id, size in self._weigh():
            if size > MAX_ENTRY_BYTES:
                logger.warning("reply too large skipped stream=%s bytes=%d", self._stream, size)
                self.last = entry_id
                continue
            entries: Any = self._client.xrange(self._stream, entry_id, entry_id)
            self.last = entry_id
            for _, fields in entries or ():
                self._entry(fields or {})

    def _weigh(self) -> list[tuple[str, int]]:
        flat: list[Any] = SIZES(self._client, [self._stream], [self.last, WEIGHED])
        ids, sizes = flat[::2], flat[1::2]
        return [(entry.decode(), int(size)) for entry, size in zip(ids, sizes, strict=True)]

    def _mend(self, error: redis.ResponseError) -> None:
        """The stream is no stream: it is ours alone, so it may go; outcomes are kept elsewhere."""
        logger.warning("reply stream unreadable stream=%s error=%s", self._stream, error)
        if "WRONGTYPE" in str(error):
            self._client.delete(self._stream)
            self.last = "0-0"
        self._link.closing.wait(0.5)
