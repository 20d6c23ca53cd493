"""RateLimitedRewardManager by its old name: your own function, in this process, under limits.

For code that imports the original class. It has the same keys, results and class attributes; the
limits hold for the whole cluster where Redis is configured. QueueRewardManager is the better
choice for new code: there the function runs on the pool's workers.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

from queue_client.compat.admission import Admission, admission_of
from queue_client.compat.options import LimitedOptions, limited_options
from queue_client.compat.rows import RowCall, row_call
from queue_client.compat.threads import ThreadCall
from queue_client.outcome import Kind, Outcome
from queue_client.verl.manager import QueueRewardManager
from queue_client.verl.results import NoReward, scalar

logger = logging.getLogger(__name__)


class _OldNames(type):
    """Class attributes by other names, readable and settable on the class itself."""

    _semaphore: Any
    _rpm_limiter: Any
    _tpm_limiter: Any

    @property
    def concurrency_limiter(cls) -> Any:
        return cls._semaphore

    @concurrency_limiter.setter
    def concurrency_limiter(cls, value: Any) -> None:
        cls._semaphore = value

    @property
    def rpm_bucket(cls) -> Any:
        return cls._rpm_limiter

    @rpm_bucket.setter
    def rpm_bucket(cls, value: Any) -> None:
        cls._rpm_limiter = value

    @property
    def tpm_bucket(cls) -> Any:
        return cls._tpm_limiter

    @tpm_bucket.setter
    def tpm_bucket(cls, value: Any) -> None:
        cls._tpm_limiter = value


class RateLimitedRewardManager(metaclass=_OldNames):
    """Calls `compute_score` under `max_concurrent`, `max_rpm` and `max_tpm` of `reward`.

    A turn, a request and its tokens are taken together, at the moment of the call and in order of
    arrival. The limits belong to the class: the first configuration counts. Options are those of
    LimitedOptions. Raises ValueError, and stays uninitialised, for limits that make no sense.
    """

    _semaphore: Any = None
    _max_concurrent: int | None = None
    _rpm_limiter: Any = None
    _max_rpm: float | None = None
    _tpm_limiter: Any = None
    _max_tpm: float | None = None
    _estimated_tokens_per_request: int | None = None
    _class_initialized = False
    _admission: Admission | None = None
    _options: LimitedOptions | None = None
    _init_lock = threading.Lock()

    @classmethod
    def init_class(cls, config: Any, tokenizer: Any = None) -> None:
        """Build the limits; a later call with others changes nothing and says so."""
        options = limited_options(config)
        with cls._init_lock:
            if cls._class_initialized:
                cls._warn_of_others(options)
                return
            admission = admission_of(options)
            cls._options, cls._admission = options, admission
            cls._semaphore = admission.concurrency
            cls._rpm_limiter, cls._tpm_limiter = admission.rpm, admission.tpm
            cls._max_concurrent = options.max_concurrent
            cls._max_rpm, cls._max_tpm = options.max_rpm, options.max_tpm
            cls._estimated_tokens_per_request = options.estimated_tokens_per_request
            cls._class_initialized = True
        scope = "this process" if options.redis_url is None else "the cluster"
        logger.info(
            "limits set scope=%s max_concurrent=%d max_rpm=%s max_tpm=%s",
            scope, options.max_concurrent, options.max_rpm, options.max_tpm,
        )  # fmt: skip

    @classmethod
    def _warn_of_others(cls, options: LimitedOptions) -> None:
        assert cls._options is not None
        for name in ("max_concurrent", "max_rpm", "max_tpm", "estimated_tokens_per_request"):
            ours, theirs = getattr(cls._options, name), getattr(options, name)
            if ours != theirs:
                logger.warning(
                    "limit ignored, the class has its own already limit=%s given=%s kept=%s",
                    name, theirs, ours,
                )  # fmt: skip

    def __init__(
        self,
        config: Any = None,
        tokenizer: Any = None,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
        num_examine: int | None = None,
        reward_fn_key: str | None = None,
        **_: Any,
    ) -> None:
        if tokenizer is None:
            raise TypeError("tokenizer: one expected (got None)")
        options = limited_options(config)
        self.config, self.tokenizer = config, tokenizer
        self.compute_score = compute_score or _verls_own()
        self.is_async_reward_score = _is_async(self.compute_score)
        self.reward_router_address = reward_router_address
        self.reward_model_tokenizer = reward_model_tokenizer
        self.timeout = float(options.timeout)
        self.on_failure = options.on_failure
        self._loop: asyncio.AbstractEventLoop | None = None
        self.init_class(config, tokenizer)

    concurrency_limiter = property(lambda self: type(self)._semaphore)
    rpm_bucket = property(lambda self: type(self)._rpm_limiter)
    tpm_bucket = property(lambda self: type(self)._tpm_limiter)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, or one of the manager's own for calls outside of any."""
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            pass
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            weakref.finalize(self, self._loop.close)
        return self._loop

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Score the last row of `data`: `reward_score` and `reward_extra_info`.

        What fails is 0.0 with `timeout` or `error`, as it was, or as `on_failure` says. Raises
        NotImplementedError of the function: a data source nobody scores is no wrong answer.
        """
        return await self._run(data, self._ready())

    async def _run(self, data: Any, admission: Admission) -> dict[str, Any]:
        call = row_call(data, self.tokenizer)
        if self.reward_router_address is not None:
            call.more["reward_router_address"] = self.reward_router_address
            call.more["reward_model_tokenizer"] = self.reward_model_tokenizer
        began = time.monotonic()
        options = self._options or LimitedOptions()
        tokens = self._estimated_tokens_per_request or options.estimated_tokens_per_request
        try:
            turn = await admission.turn(tokens, options.limit_wait_s)
        except TimeoutError as error:
            return self._failed(call, Kind.LIMIT_TIMEOUT, str(error) or "no turn in time", began)
        started = time.monotonic()
        thread: ThreadCall | None = None
        try:
            async with asyncio.timeout(self.timeout):
                if self.is_async_reward_score:
                    result = await call.of(self.compute_score)
                else:
                    thread = ThreadCall(lambda: call.of(self.compute_score))
                    result = await thread.result()
                    if inspect.isawaitable(result):
                        result = await result
            return self._scored(result, began, started)
        except TimeoutError:
            text = f"the reward function took longer than {self.timeout:g} s"
            return self._failed(call, Kind.TIMEOUT, text, began, started)
        except (NotImplementedError, NoReward):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a reward function raises
            text = str(error) or type(error).__name__
            return self._failed(call, Kind.SCORER_ERROR, text, began, started)
        finally:
            # A thread that goes on keeps its place: the limit is on what runs.
            if thread is None or not thread.leave(turn.end_from_thread):
                await turn.end()

    def _scored(self, result: Any, began: float, started: float) -> dict[str, Any]:
        given = result if isinstance(result, Mapping) else {"acc": result}
        raw = result["score"] if isinstance(result, Mapping) else result
        reward = float(raw.item() if hasattr(raw, "item") else raw)
        if not math.isfinite(reward):
            raise ValueError(f"the reward is {reward}")
        said = {str(key): _plain(value) for key, value in given.items()}
        facts = _facts(None, None, began, started)
        score: Any = raw if type(raw) in (int, float, bool) else reward
        return {"reward_score": score, "reward_extra_info": {"acc": reward, **facts, **said}}

    def _failed(
        self, call: RowCall, kind: Kind, text: str, began: float, started: float | None = None
    ) -> dict[str, Any]:
        logger.warning("reward failed data_source=%s kind=%s error=%s", call.source, kind, text)
        if self.on_failure == "raise":
            raise NoReward(str(call.source), Outcome.failed(kind, text))
        reward = 0.0 if self.on_failure == "zero" else math.nan
        facts = _facts(kind, text, began, started)
        return {"reward_score": reward, "reward_extra_info": {"acc": reward, **facts}}

    def __call__(self, data: Any, return_dict: bool = False) -> Any:
        """Score every row; rewards stand on each row's last response token, [B, R] float32.

        With `return_dict` also `reward_extra_info`: a list for each key of any row, None where a
        row lacks it. Works inside a running loop too, where it blocks until all are done.
        """
        if "rm_scores" in set(data.batch.keys()):
            given = data.batch["rm_scores"]
            if not return_dict:
                return given
            keys = data.meta_info.get("reward_extra_keys", [])
            infos: Any = {key: data.non_tensor_batch[key] for key in keys}
            return {"reward_tensor": given, "reward_extra_info": infos}
        results = self._run_all(data)
        scores = [result["reward_score"] for result in results]
        tensor = QueueRewardManager.assemble_rm_scores(data, scores)
        if not return_dict:
            return tensor
        rows = [result["reward_extra_info"] for result in results]
        keys = list({key: None for row in rows for key in row})
        infos = {key: [row.get(key) for row in rows] for key in keys}
        return {"reward_tensor": tensor, "reward_extra_info": infos}

    def _run_all(self, data: Any) -> list[dict[str, Any]]:
        admission = self._ready()

        async def run(admission: Admission) -> list[dict[str, Any]]:
            rows = range(len(data))
            calls = (self._run(data[row : row + 1], admission) for row in rows)
            return list(await asyncio.gather(*calls))

        async def run_elsewhere() -> list[dict[str, Any]]:
            own = admission.for_another_loop()
            try:
                return await run(own)
            finally:
                await own.close()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.loop.run_until_complete(run(admission))
        return _in_thread(run_elsewhere)

    def _ready(self) -> Admission:
        if self._admission is None or not self._class_initialized:
            self.init_class(self.config, self.tokenizer)
        assert self._admission is not None
        return self._admission


def _in_thread(run: Any) -> list[dict[str, Any]]:
    """Run a coroutine in a loop of its own in a thread that ends with it."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append((asyncio.run(run()), None))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            found.append((None, error))

    thread = threading.Thread(target=work, name="rewardpool-rewards")
    thread.start()
    thread.join()
    results, error = found[0]
    if error is not None:
        raise error
    return list(results)


def _facts(
    kind: Kind | None, text: str | None, began: float, started: float | None
) -> dict[str, Any]:
    """What stands in every row, scored or failed."""
    now = time.monotonic()
    return {
        "failed": kind is not None,
        "kind": None if kind is None else str(kind),
        "timeout": kind is Kind.TIMEOUT,
        "error": text,
        "wait_s": (now if started is None else started) - began,
        "run_s": 0.0 if started is None else now - started,
    }


def _plain(value: Any) -> Any:
    return scalar(value.item() if hasattr(value, "item") and not isinstance(value, str) else value)


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - its kind matters, not that it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _verls_own() -> Any:
    try:
        from verl.utils.reward_score import default_compute_score
    except ImportError:
        raise TypeError("compute_score: a function expected without verl (got None)") from None
    return default_compute_score
