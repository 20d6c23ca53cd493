"""Real workers on the ordinary `rq worker` line, and a producer that speaks the protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import redis
from rq import Queue

from queue_client import Outcome, Output, Trajectory, protocol
from queue_client.batch import TrajectoryBatch
from queue_client.wire import Serializer, decode_outcome, encode_batch

HERE = Path(__file__).parent
START_S = 60.0
OUR_CLASSES = ("-j", "worker.PoolJob", "-S", "queue_client.wire.Serializer")


class Workers:
    """Starts `rq worker` processes and ends them; each logs to a file of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.runs = folder / "runs.txt"
        self.all: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *queues: str,
        worker: str = "pool_engines.SteeredWorker",
        options: tuple[str, ...] = (),
        wait: bool = True,
        pause: str = "",
        classes: tuple[str, ...] = OUR_CLASSES,
        **settings: Any,
    ) -> subprocess.Popen[bytes]:
        """Start one; `settings` are keys of [worker]."""
        names = queues or ("rewards",)
        env = dict(os.environ, POOL_RUNS=str(self.runs), POOL_PAUSE=pause, PYTHONPATH=str(HERE))
        env |= {f"REWARDPOOL_WORKER__{k.upper()}": str(v) for k, v in settings.items()}
        command = [sys.executable, "-m", "rq.cli", "worker", "-u", self.url, "-w", worker]
        command += [*classes, *options, *names]
        log = (self.folder / f"worker{len(self.all)}.log").open("wb")
        with log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        self.all.append(process)
        if wait:
            self.await_listening(process)
        return process

    def await_listening(self, process: subprocess.Popen[bytes]) -> str:
        """Wait until the worker is registered; returns its RQ name."""
        with redis.Redis.from_url(
            self.url, decode_responses=True, encoding_errors="replace"
        ) as client:
            end = time.monotonic() + START_S
            while time.monotonic() < end:
                for key in client.smembers("rq:workers"):
                    if client.hget(key, "pid") == str(process.pid):
                        return str(key).removeprefix("rq:worker:")
                if process.poll() is not None:
                    break
                time.sleep(0.02)
        raise AssertionError(f"the worker did not start:\n{self.log(process)}")

    def log(self, process: subprocess.Popen[bytes]) -> str:
        """What a worker wrote."""
        path = self.folder / f"worker{self.all.index(process)}.log"
        return path.read_text(errors="replace")

    def starts(self) -> Counter[str]:
        """How often each row was started, by uid, as the engines saw it."""
        if not self.runs.exists():
            return Counter()
        return Counter(line.split()[0] for line in self.runs.read_text().splitlines())

    def stop(self) -> None:
        """End all of them."""
        for process in self.all:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.all:
            process.wait()


class Producer:
    """Enqueues batches and collects outcomes: what the client does, in a few lines."""

    def __init__(self, connection: redis.Redis, queue: str = "rewards") -> None:
        self.connection = connection
        self.id = protocol.new_producer_id()
        self.queue = Queue(queue, connection=connection, serializer=Serializer)
        self.last = "0"
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        self.ends: dict[str, tuple[str, str]] = {}
        self.copies = 0
        self.live()

    def live(self) -> None:
        """Say that it lives."""
        self.connection.set(protocol.producer_key(self.id), 1, ex=protocol.PRODUCER_TTL_S)

    def send(
        self, rows: list[dict[str, Any]], *, uid: str = "row", timeout_s: float | None = None
    ) -> str:
        """Enqueue one job; a row is its `extra_info`. Returns the job's id."""
        trajectories = [
            Trajectory(outputs=[Output(text="text")], extra_info=info, uid=f"{uid}{i}")
            for i, info in enumerate(rows)
        ]
        job_id = protocol.new_job_id(self.id)
        now_ms = self.redis_ms()
        deadline_ms = 0 if timeout_s is None else now_ms + int(timeout_s * 1000)
        reference = protocol.Reference(job_id, len(rows), deadline_ms, now_ms)
        self.enqueue(reference, encode_batch(TrajectoryBatch.pad(trajectories)))
        return job_id

    def enqueue(self, reference: protocol.Reference, payload: bytes | None, **changes: Any) -> None:
        """Write payload, job and id in one transaction."""
        ttl = protocol.job_ttl_s(None)
        data = Queue.prepare_data(
            changes.pop("function", protocol.SCORE_FUNCTION),
            args=changes.pop("args", reference.args()),
            timeout=-1,
            ttl=ttl,
            result_ttl=protocol.RESULT_TTL_S,
            failure_ttl=protocol.FAILURE_TTL_S,
            description=f"{reference.rows} rows",
            job_id=reference.job_id,
            **changes,
        )
        job_key = f"rq:job:{reference.job_id}"
        with self.connection.pipeline() as pipeline:
            if payload is not None:
                pipeline.set(protocol.payload_key(reference.job_id), payload, ex=ttl)
            self.queue.enqueue_many([data], pipeline=pipeline)
            pipeline.hset(job_key, protocol.ROWS_FIELD, reference.rows)
            pipeline.expire(job_key, ttl + 60)
            pipeline.execute()

    def redis_ms(self) -> int:
        """Now, on Redis' clock."""
        seconds, micros = self.connection.time()
        return seconds * 1000 + micros // 1000

    def read(self, block_ms: int = 500) -> None:
        """Take what has come."""
        answer = self.connection.xread({protocol.reply_key(self.id): self.last}, block=block_ms)
        for _, entries in answer or []:
            for self.last, entry in entries:
                job_id = entry[b"job"].decode()
                if b"failed" in entry:
                    said = (entry[b"failed"].decode(), entry[b"message"].decode())
                    self.ends[job_id] = said
                for field, value in entry.items():
                    if field.isdigit():
                        self.copies += (job_id, int(field)) in self.outcomes
                        self.outcomes[job_id, int(field)] = decode_outcome(value)

    def collect(self, count: int, timeout_s: float = 60.0) -> dict[tuple[str, int], Outcome]:
        """Wait for so many outcomes."""
        end = time.monotonic() + timeout_s
        while len(self.outcomes) < count and time.monotonic() < end:
            self.live()
            self.read()
        assert len(self.outcomes) == count, f"{len(self.outcomes)} of {count} outcomes"
        return self.outcomes

    def await_end(self, job_id: str, timeout_s: float = 60.0) -> tuple[str, str]:
        """Wait for the end of a whole job."""
        end = time.monotonic() + timeout_s
        while job_id not in self.ends and time.monotonic() < end:
            self.read()
        return self.ends[job_id]

    def status(self, job_id: str) -> str | None:
        """RQ's word for what became of a job."""
        found = self.connection.hget(f"rq:job:{job_id}", "status")
        return None if found is None else found.decode()

    def await_status(self, job_id: str, wanted: str, timeout_s: float = 30.0) -> None:
        """Wait until RQ says so."""
        end = time.monotonic() + timeout_s
        while self.status(job_id) != wanted and time.monotonic() < end:
            time.sleep(0.02)
        assert self.status(job_id) == wanted


def await_true(condition: Any, timeout_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
