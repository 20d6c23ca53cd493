"""A small consumer that speaks the protocol, for where no real worker is needed."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import redis

from queue_client import Outcome, Output, Trajectory
from queue_client.jobs import job_key, queue_key
from queue_client.listeners import workers_key
from queue_client.outcome import Kind
from queue_client.protocol import (
    REPLY_TTL_S,
    RESULT_TTL_S,
    Reference,
    cancel_key,
    outcomes_key,
    payload_key,
)
from queue_client.wire import Serializer, decode_batch, encode_outcome

Score = Callable[[Trajectory], Outcome]


def length(trajectory: Trajectory) -> Outcome:
    """The length of the last output's text."""
    return Outcome.scored(float(len(trajectory.outputs[-1].text or "")), uid=trajectory.uid)


class Died(Exception):
    """Raised by a score function: the consumer stops where it is, as if it were killed."""


class Consumer:
    """Takes jobs from queues, one by one, and answers row by row; counts what it scored."""

    def __init__(self, url: str, *, queues: tuple[str, ...] = ("rewards",), score: Score = length):
        self._client = redis.Redis.from_url(url)
        self._queues, self.score = queues, score
        self.scored: list[str | None] = []
        self.jobs: list[Reference] = []
        self.functions: list[str] = []
        self.backwards = False
        self.mute = False  # write outcomes, send no message
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Consumer:
        for queue in self._queues:
            self._client.sadd(workers_key(queue), "rq:worker:test")
        self._client.set("rq:worker:test", "1", ex=120)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._client.close()

    def _run(self) -> None:
        keys = [queue_key(queue) for queue in self._queues]
        while not self._stop.is_set():
            try:
                popped: Any = self._client.blpop(keys, 0.2)
                if popped:
                    self.work(popped[1].decode())
            except Died:
                return
            except redis.RedisError:
                self._stop.wait(0.1)

    def work(self, job_id: str) -> None:
        """Score one job."""
        found: Any = self._client.hgetall(job_key(job_id))
        function, instance, args, kwargs = Serializer.loads(zlib.decompress(found[b"data"]))
        assert (instance, kwargs) == (None, {})
        reference = Reference.read(job_id, args)
        self.jobs.append(reference)
        self.functions.append(function)
        self._client.hset(job_key(job_id), "status", "started")
        payload: Any = self._client.get(payload_key(job_id))
        rows = list(enumerate(decode_batch(payload).trajectories))
        for row, trajectory in reversed(rows) if self.backwards else rows:
            self.answer(reference, row, self._outcome(reference, row, trajectory))
        self._client.hset(job_key(job_id), "status", "finished")
        self._client.expire(job_key(job_id), RESULT_TTL_S)
        self._client.delete(payload_key(job_id))

    def _outcome(self, reference: Reference, row: int, trajectory: Trajectory) -> Outcome:
        given_up: Any = self._client.smismember(cancel_key(reference.job_id), ["*", str(row)])
        if any(given_up):
            return Outcome.failed(Kind.CANCELLED, "cancelled")
        self.scored.append(trajectory.uid)
        return self.score(trajectory)

    def answer(self, reference: Reference, row: int, outcome: Outcome) -> None:
        """Write one outcome and its message."""
        encoded = encode_outcome(outcome)
        key, stream = outcomes_key(reference.job_id), reference.reply
        assert stream is not None
        if not self._client.hsetnx(key, str(row), encoded):
            return
        self._client.expire(key, RESULT_TTL_S)
        if not self.mute:
            self._client.xadd(stream, {"job": reference.job_id, str(row): encoded})
            self._client.expire(stream, REPLY_TTL_S)


def rows(count: int, *, prefix: str = "") -> list[Trajectory]:
    """Trajectories whose texts are 0, 1, 2 ... characters long; their uid says the place."""
    return [
        Trajectory(outputs=[Output(text="x" * row)], uid=f"{prefix}{row}") for row in range(count)
    ]


def until(holds: Callable[[], object], *, timeout_s: float = 30) -> None:
    """Wait until it holds."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.005)
