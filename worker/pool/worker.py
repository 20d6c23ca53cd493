"""`worker.PoolWorker`: RQ's worker in name, keys and command line; many rows in flight in fact."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import redis
from rq.command import parse_payload
from rq.defaults import (
    DEFAULT_LOGGING_DATE_FORMAT,
    DEFAULT_LOGGING_FORMAT,
    DEFAULT_MAINTENANCE_TASK_INTERVAL,
    DEFAULT_WORKER_TTL,
)
from rq.logutils import setup_loghandlers
from rq.timeouts import BaseDeathPenalty
from rq.utils import now
from rq.worker.base import BaseWorker, DequeueStrategy
from rq.worker_registration import register

from worker.pool.job import PoolJob
from worker.pool.loop import Engine
from worker.pool.redis_url import url_of
from worker.pool.run import PoolRun, RunOptions
from worker.pool.safety import remove_pickle
from worker.pool.scheduler import SchedulerProcess
from worker.settings import RedisSettings, Settings, SettingsError, load_settings

remove_pickle()

logger = logging.getLogger("rewardpool.pool")

EXIT_USAGE = 2
PUBSUB_RETRY_S = 1.0
DUPLICATE_SIGNAL_S = 1.0  # a process group and a supervisor may both deliver the same Ctrl-C


class NoPenalty(BaseDeathPenalty):  # type: ignore[misc]
    """No alarm signals: rows have time limits of their own."""

    def setup_death_penalty(self) -> None:
        """Set nothing."""

    def cancel_death_penalty(self) -> None:
        """Cancel nothing."""


class PoolWorker(BaseWorker):  # type: ignore[misc]
    """Keeps many rows in flight on one event loop.

    Settings come from `rewardpool.toml` and the environment when work begins. RQ's own options
    `--worker-ttl` and `--maintenance-interval`, where given, set `expiry_s` and `sweep_s`.
    `work()` returns for a requested stop only; everything else raises, and ends with a code
    other than 0.
    """

    job_class = PoolJob
    death_penalty_class = NoPenalty

    def __init__(self, queues: Any, name: str | None = None, **options: Any) -> None:
        name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        job_class = options.get("job_class") or PoolJob
        if not (isinstance(job_class, str) or issubclass(job_class, PoolJob)):
            options["job_class"] = PoolJob
        self._given_ttl_s = options.get("worker_ttl")
        super().__init__(queues, name=name, **options)
        _keep_bytes(self.connection)
        self.pool_settings: Settings | None = None
        self._run: PoolRun | None = None
        self._stop_asked_at: float | None = None

    def make_engine(self, settings: Settings) -> Engine:
        """Return what scores; the one thing a test puts another in place of."""
        from worker.scoring.engine import ScoringEngine

        return ScoringEngine(settings)

    # ---- RQ's face

    def work(
        self,
        burst: bool = False,
        logging_level: str | None = None,
        date_format: str = DEFAULT_LOGGING_DATE_FORMAT,
        log_format: str = DEFAULT_LOGGING_FORMAT,
        max_jobs: int | None = None,
        max_idle_time: int | None = None,
        with_scheduler: bool = False,
        dequeue_strategy: DequeueStrategy = DequeueStrategy.DEFAULT,
    ) -> bool:
        """Take jobs and score them until told to stop. Returns whether any job was taken.

        Raises SystemExit(2) for wrong settings, and whatever ends the work for another reason.
        """
        setup_loghandlers(logging_level, date_format, log_format, name="rewardpool")
        self._dequeue_strategy = dequeue_strategy
        options = RunOptions(burst=burst, max_jobs=max_jobs, max_idle_s=max_idle_time)
        settings = self._settings()
        scheduler = (
            SchedulerProcess(self.connection, self.queue_names()) if with_scheduler else None
        )
        try:
            return asyncio.run(
                self._work(settings, options, (logging_level, date_format, log_format))
            )
        except SettingsError as error:
            sys.stderr.write(f"rewardpool: {error}\n")
            raise SystemExit(EXIT_USAGE) from None
        finally:
            if scheduler is not None:
                scheduler.stop()

    def _settings(self) -> Settings:
        try:
            settings = self.pool_settings or load_settings()
        except SettingsError as error:
            sys.stderr.write(f"rewardpool: {error}\n")
            raise SystemExit(EXIT_USAGE) from None
        worker = settings.worker
        if self._given_ttl_s and self._given_ttl_s != DEFAULT_WORKER_TTL:
            beat_s = min(worker.heartbeat_s, self._given_ttl_s / 4)
            changed = {"expiry_s": int(self._given_ttl_s), "heartbeat_s": beat_s}
            worker = worker.model_copy(update=changed)
        if self.maintenance_interval != DEFAULT_MAINTENANCE_TASK_INTERVAL:
            worker = worker.model_copy(update={"sweep_s": float(self.maintenance_interval)})
        if worker.heartbeat_s * 2 > worker.expiry_s:
            sys.stderr.write(
                f"rewardpool: worker.heartbeat_s: at most half of expiry_s "
                f"({worker.expiry_s}) (got {worker.heartbeat_s:g})\n"
            )
            raise SystemExit(EXIT_USAGE)
        self.worker_ttl = worker.expiry_s
        return settings.model_copy(update={"worker": worker, "redis": self._redis(settings)})

    def _redis(self, settings: Settings) -> RedisSettings:
        """Limits live where the queues are, unless the settings name another Redis."""
        if "url" in settings.redis.model_fields_set:
            return settings.redis
        url = url_of(self.connection)
        if url is None and settings.limits:
            sys.stderr.write(
                "rewardpool: redis.url: needed where workers find Redis through Sentinel and there "
                f"are limits ({', '.join(sorted(settings.limits))}): an address that follows the "
                "primary\n"
            )
            raise SystemExit(EXIT_USAGE)
        return settings.redis if url is None else RedisSettings(url=url)

    async def _work(self, settings: Settings, options: RunOptions, logs: tuple[Any, ...]) -> bool:
        asked_to_stop = asyncio.Event()
        self._handle_signals(asked_to_stop)
        engine = self.make_engine(settings)
        try:
            if not await _unless(asked_to_stop, engine.start()):
                return False
            self._take_over_name()
            self.bootstrap(*logs)
            run = self._run = PoolRun(self, engine, settings, options)
            if asked_to_stop.is_set():
                run.stop_warm()
            try:
                return await run.until_stopped()
            finally:
                self._leave()
        finally:
            await engine.close()

    def _handle_signals(self, asked_to_stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, asked_to_stop)

    def _on_signal(self, asked_to_stop: asyncio.Event) -> None:
        if self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()
            self._shutdown_requested_date = now()
            logger.info("stop requested worker=%s", self.name)
            asked_to_stop.set()
            if self._run is not None:
                self._run.stop_warm()
            return
        if self._run is not None and time.monotonic() - self._stop_asked_at >= DUPLICATE_SIGNAL_S:
            logger.info("cold stop requested worker=%s", self.name)
            self._run.stop_cold()

    def _leave(self) -> None:
        try:
            self.teardown()
        except (redis.exceptions.RedisError, OSError) as error:
            logger.warning("worker left without a word worker=%s error=%s", self.name, error)

    # ---- registration

    def _take_over_name(self) -> None:
        """Let a worker that was killed be restarted under its name, on the same machine."""
        host, pid = self.connection.hmget(self.key, "hostname", "pid")
        if not pid or not host or host.decode("utf-8", "replace") != self.hostname:
            return
        if pid.isdigit() and int(pid) != os.getpid() and not _is_running(int(pid)):
            self.connection.delete(self.key)

    def register_birth(self) -> None:
        """Register, with an expiry of `expiry_s`."""
        super().register_birth()
        self.connection.expire(self.key, self.worker_ttl)

    def register_again(self, connection: redis.Redis) -> None:
        """Write the worker's key again after it expired under us: one registration, with expiry."""
        self.last_heartbeat = now()
        with connection.pipeline() as pipeline:
            pipeline.hset(self.key, mapping=self.serialize())
            register(self, pipeline)
            pipeline.expire(self.key, self.worker_ttl)
            pipeline.execute()

    # ---- RQ's commands

    def handle_payload(self, message: dict[str, Any]) -> None:
        """Obey `rq`'s commands: shutdown, stop-job, stop-execution. Nonsense is logged."""
        try:
            payload = parse_payload(message)
            command, job_id = payload["command"], payload.get("job_id")
        except Exception as error:  # noqa: BLE001 - anybody can publish anything
            logger.warning("command not understood error=%s", type(error).__name__)
            return
        if command == "shutdown":
            os.kill(os.getpid(), signal.SIGINT)
        elif command in ("stop-job", "stop-execution") and isinstance(job_id, str):
            run = payload.get("execution_id") if command == "stop-execution" else None
            if self._run is not None:
                self._run.stop_job(job_id, run if isinstance(run, str) else None)
        else:
            logger.warning("command ignored command=%s", str(command)[:40])

    def _pubsub_exception_handler(self, exc: Exception, pubsub: Any, pubsub_thread: Any) -> None:
        """Keep listening for commands, whatever the connection meets."""
        logger.warning("commands interrupted error=%s", exc)
        time.sleep(PUBSUB_RETRY_S)

    def order_queues(self, names: Sequence[str], last: str | None) -> Sequence[str]:
        """Return the queues' order for the next look, as `--dequeue-strategy` wants it."""
        if last is None or self._dequeue_strategy == DequeueStrategy.DEFAULT:
            return names
        if self._dequeue_strategy == DequeueStrategy.RANDOM:
            return secrets.SystemRandom().sample(list(names), len(names))
        position = list(names).index(last)
        return [*names[position + 1 :], *names[: position + 1]]

    def execute_job(self, job: Any, queue: Any) -> None:
        """Not how this worker works: jobs are taken in batches."""
        raise NotImplementedError("PoolWorker takes jobs in batches; see worker.pool.run")


def _keep_bytes(connection: redis.Redis) -> None:
    """Undo a URL's `decode_responses`: names, commands and payloads are read as bytes here."""
    pool = connection.connection_pool
    if pool.connection_kwargs.get("decode_responses"):
        pool.connection_kwargs["decode_responses"] = False
        pool.disconnect()
        pool.reset()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work unless told to stop meanwhile. Returns whether it was done."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if doing.done():
        doing.result()
        return True
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    return False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
