"""The execution framework of verl's tools by its old names, doing what they say.

| name | is |
| --- | --- |
| `TokenBucketWorker` | so many places; with a Redis address its name is the singleton |
| `ExecutionWorker` | runs a function in a place; a failure is a warning and None, as it was |
| `ExecutionPool` | threads or processes, each call in a place; a failure is raised |
| `init_execution_pool` | makes a pool from the old arguments |
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from enum import Enum
from typing import Any, TypeVar

from queue_client.tools import places as limits

logger = logging.getLogger(__name__)

T = TypeVar("T")
DEFAULT_NAME = "tools"


class PoolMode(Enum):
    """Where a pool's functions run."""

    ThreadMode = 1
    ProcessMode = 2


class TokenBucketWorker:
    """So many places under a name: in the cluster with `redis_url`, else in this process."""

    def __init__(
        self, rate_limit: int, *, name: str = DEFAULT_NAME, redis_url: str | None = None
    ) -> None:
        self.rate_limit = _positive("rate_limit", rate_limit)
        self.name = name
        self._places = limits.places(name, self.rate_limit, redis_url)
        self._leases: list[Any] = []
        self._lock = threading.Lock()

    def acquire(self, *, timeout_s: float | None = None) -> None:
        """Take a place, waiting for one if need be."""
        lease = self._places.acquire(timeout_s=timeout_s, lease_s=limits.LEASE_S)
        limits.keep(lease)
        with self._lock:
            self._leases.append(lease)

    def release(self) -> None:
        """Give back a place taken here; with none taken it is a warning."""
        with self._lock:
            lease = self._leases.pop(0) if self._leases else None
        if lease is None:
            logger.warning("release without acquire ignored limit=%s", self.name)
            return
        limits.drop(lease)

    @property
    def current_count(self) -> int:
        """How many places are taken, by everybody."""
        return int(self._places.usage().in_flight)

    def get_current_count(self) -> int:
        """The same, by its other old name."""
        return self.current_count


class ExecutionWorker:
    """Runs functions in the caller's thread, each in a place."""

    def __init__(
        self,
        enable_global_rate_limit: bool = True,
        rate_limit: int = 10,
        *,
        name: str = DEFAULT_NAME,
        redis_url: str | None = None,
    ) -> None:
        self.limit = _limit(enable_global_rate_limit, rate_limit, name, redis_url)

    def ping(self) -> bool:
        """Say that it is there."""
        return True

    def execute(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Run a function; what it raises is logged, and None is returned."""
        with limits.held(self.limit):
            try:
                return fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  (what the old name promises)
                logger.warning("function failed error=%s", f"{type(error).__name__}: {error}")
                return None


class _Execute:
    """`pool.execute(fn, …)`, and `pool.execute.remote(fn, …)` for code written for an actor."""

    def __init__(self, pool: ExecutionPool) -> None:
        self._pool = pool

    async def __call__(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function in the pool; raises what it raises."""
        future = self._pool.submit(fn, *args, **kwargs)
        return await asyncio.wrap_future(future)

    def remote(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> Any:
        """The same, by the name an actor's method has."""
        return self(fn, *args, **kwargs)


class ExecutionPool:
    """`num_workers` threads or processes; usable from any event loop and any thread.

    Functions for processes must be importable by name. A function that ends its process fails
    alone; the pool goes on.
    """

    def __init__(
        self,
        num_workers: int,
        *,
        limit: limits.Places | None = None,
        mode: PoolMode = PoolMode.ThreadMode,
    ) -> None:
        self.num_workers = _positive("num_workers", num_workers)
        self.limit, self.mode = limit, PoolMode(mode)
        self.execute = _Execute(self)
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="rewardpool-tool")
        self._processes: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> Any:
        """Run a function in the pool and return a concurrent.futures.Future of it."""
        return self._threads.submit(self._run, fn, args, kwargs)

    def run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function in the pool and wait for it; raises what it raises."""
        result: T = self.submit(fn, *args, **kwargs).result()
        return result

    def close(self) -> None:
        """End threads and processes once their calls are done."""
        self._threads.shutdown(wait=True)
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None:
            processes.shutdown(wait=True)

    def _run(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        with limits.held(self.limit):
            if self.mode is PoolMode.ThreadMode:
                return fn(*args, **kwargs)
            return self._in_process(fn, args, kwargs)

    def _in_process(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        processes = self._started()
        try:
            return processes.submit(fn, *args, **kwargs).result()
        except BrokenProcessPool as error:
            with self._lock:
                if self._processes is processes:
                    self._processes = None
            processes.shutdown(wait=False)
            raise RuntimeError("a function ended its process") from error

    def _started(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._processes is None:
                # never forked: the trainer has threads, and often a GPU
                context = multiprocessing.get_context("spawn")
                self._processes = ProcessPoolExecutor(self.num_workers, mp_context=context)
            return self._processes


def init_execution_pool(
    num_workers: int,
    enable_global_rate_limit: bool = True,
    rate_limit: int = 10,
    mode: PoolMode = PoolMode.ThreadMode,
    *,
    name: str = DEFAULT_NAME,
    redis_url: str | None = None,
) -> ExecutionPool:
    """Return a pool whose calls take places under `name`, of which there are `rate_limit`.

    Raises ValueError for numbers below 1 and for what is not a PoolMode.
    """
    limit = _limit(enable_global_rate_limit, rate_limit, name, redis_url)
    return ExecutionPool(num_workers, limit=limit, mode=mode)


def _limit(enabled: bool, most: int, name: str, redis_url: str | None) -> limits.Places | None:
    return limits.places(name, _positive("rate_limit", most), redis_url) if enabled else None


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: a whole number of at least 1 expected (got {value!r})")
    return value
