"""A pool of one's own on this machine: a server unless one is given, and `rq worker` processes.

Every process runs under the watcher, so that nothing survives us, SIGKILL included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from queue_client.protocol import DEFAULT_QUEUE
from worker.ops import server_watch
from worker.ops.embedded import EmbeddedServer

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
CHECK_S = 0.05
WRONG_USAGE = 2


class PoolFailed(RuntimeError):
    """The pool did not come up, or a worker process ended; the message holds the end of its log."""


class PoolMisconfigured(PoolFailed):
    """A worker refused its settings or its reward function; the message is its one line."""


class LocalPool:
    """Worker processes on one queue; a context manager.

    `settings` is a tree as in `rewardpool.toml`; it travels in the environment, laid over the
    file that `config` names. Raises PoolFailed if a worker does not come up.
    """

    def __init__(
        self,
        *,
        workers: int,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        config: str | os.PathLike[str] | None = None,
        redis_url: str | None = None,
        queue: str = DEFAULT_QUEUE,
    ) -> None:
        self.workers, self.queue, self.url = workers, queue, redis_url or ""
        self._settings, self._config = dict(settings or {}), config
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs = Path()

    def __enter__(self) -> LocalPool:
        try:
            if not self.url:
                self.url = self._stack.enter_context(EmbeddedServer()).url
            self._logs = Path(
                self._stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="rewardpool-", ignore_cleanup_errors=True)
                )
            )
            self._start_workers()
        except redis.exceptions.RedisError as error:
            self.stop()
            raise PoolFailed(f"Redis cannot be reached: {error}") from None
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the workers, then the server, and remove the folders."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._stack.close()

    def check(self) -> None:
        """Raise PoolFailed if a worker process has ended."""
        for number, process in enumerate(self._processes):
            code = process.poll()
            if code == WRONG_USAGE:
                raise PoolMisconfigured(self._tail(number).strip().splitlines()[-1])
            if code is not None:
                raise PoolFailed(f"worker {number} ended with code {code}:\n{self._tail(number)}")

    def _start(self, number: int) -> None:
        with (self._logs / f"worker-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    server_watch.__file__,
                    str(self._logs),
                    *self._command(),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                start_new_session=True,
            )
        self._processes.append(process)

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "rq.cli", "worker", "-u", self.url),
            *("-w", "worker.PoolWorker", "-j", "worker.PoolJob"),
            *("-S", "queue_client.wire.Serializer", self.queue),
        ]

    def environment(self) -> dict[str, str]:
        """The worker processes' environment; `load_settings` reads the same settings from it."""
        env = dict(os.environ)
        if self._config:
            env["REWARDPOOL_CONFIG"] = os.path.abspath(self._config)
        if self.url:
            env["REWARDPOOL_REDIS__URL"] = self.url
        for section, keys in self._settings.items():
            for key, value in keys.items():
                text = value if isinstance(value, str) else json.dumps(value)
                env[f"REWARDPOOL_{section.upper()}__{key.upper()}"] = text
        return env

    def _start_workers(self) -> None:
        listening = f"rq:workers:{self.queue}"
        at_once = Retry(NoBackoff(), 0)
        with redis.Redis.from_url(self.url, retry=at_once) as client:
            before = int(client.scard(listening))
            for number in range(self.workers):
                self._start(number)
            deadline = time.monotonic() + START_TIMEOUT_S
            while int(client.scard(listening)) < before + self.workers:
                self.check()
                if time.monotonic() > deadline:
                    raise PoolFailed(f"no worker within {START_TIMEOUT_S:g} s:\n{self._tail(0)}")
                time.sleep(CHECK_S)

    def _tail(self, number: int) -> str:
        log = self._logs / f"worker-{number}.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""
