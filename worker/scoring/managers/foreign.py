"""Managers of other makers, by path: classes written for verl, run unchanged.

A class with `run_single(data)` is built with verl's five keywords; one that is called as
`manager(data, return_dict=True)` with verl's older four. Either sees every output of the
trajectory as a row of a `DataProto`-like view.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from queue_client.view import view_of
from worker.scoring.failures import failure_of
from worker.scoring.functions import is_async, load
from worker.scoring.results import BadScore, Verdict, number, plain
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt, supervised, timed_out
from worker.scoring.threads import Raised, ThreadPool
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.workshop import Workshop


class ForeignManager:
    """One instance of somebody's class, asked row by row."""

    takes_outputs = True
    uses_limit = True  # its config has the numbers

    def __init__(self, manager: Any, threads: ThreadPool, encode: Any) -> None:
        self._manager, self._threads, self._encode = manager, threads, encode
        self._ask = getattr(manager, "run_single", None)

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self:
        """Load the class and build it. Raises SettingsError for one that cannot be built."""
        spec = fields.manager or ""
        made = load(spec, what="manager")
        if not inspect.isclass(made):
            raise SettingsError(f"reward.manager: {spec!r} is a {type(made).__name__}, no class")
        if not callable(getattr(made, "run_single", None) or getattr(made, "__call__", None)):  # noqa: B004
            raise SettingsError(f"reward.manager: {spec!r} has neither run_single nor __call__")
        offered = _keywords(fields, workshop)
        try:
            manager = made(**_accepted(made, offered))
        except Exception as error:
            raise SettingsError(
                f"reward.manager: {spec!r} cannot be built: {type(error).__name__}: {error}"
            ) from error
        tokenizer = workshop.decoder.tokenizer
        encode = (
            None
            if tokenizer is None
            else functools.partial(tokenizer.encode, add_special_tokens=False)
        )
        return cls(manager, workshop.threads, encode)

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Ask the manager; async ones on the loop, others in a thread."""
        clock = attempt.clock
        try:
            if self._ask is not None and is_async(self._ask):
                clock.start()
                data = view_of(row.with_texts(), encode=self._encode)
                return _read(await supervised(self._ask(data), clock))
            value = await self._threads.run(lambda: self._called(row), clock)
            if inspect.isawaitable(value):
                clock.start()
                value = await supervised(value, clock)
            return _read(value)
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            raise timed_out(clock) from None
        except Raised as raised:
            raise failure_of(raised.error) from raised.error
        except BaseException as error:
            raise failure_of(error) from error
        finally:
            clock.stop()

    def _called(self, row: Row) -> Any:
        data = view_of(row.with_texts(), encode=self._encode)
        if self._ask is not None:
            return self._ask(data)
        return self._manager(data, return_dict=True)


class ConfigView(dict[str, Any]):
    """Settings as verl's managers read them: `config.reward.get(...)`, `config["reward"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _view(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ConfigView({str(key): _view(item) for key, item in value.items()})
    return [_view(item) for item in value] if isinstance(value, list) else value


def _keywords(fields: RewardFields, workshop: Workshop) -> dict[str, Any]:
    kwargs = dict(fields.kwargs)
    router = kwargs.get("reward_router_address")
    reward: dict[str, Any] = {
        "reward_kwargs": kwargs,
        "max_concurrent": fields.max_concurrent,
        "max_rpm": fields.rpm,
        "max_tpm": fields.tpm,
        "timeout": fields.timeout_s,
        "num_workers": workshop.settings.worker.processes,
        **kwargs,
    }
    reward = {name: value for name, value in reward.items() if value is not None}
    config = {
        "reward": reward,
        "trainer": {"experiment_name": kwargs.get("experiment_name", "")},
        **kwargs.get("config", {}),
    }
    return {
        "config": _view(config),
        "tokenizer": workshop.decoder.tokenizer,
        "compute_score": load(fields.function) if fields.function else workshop.compute_score,
        "reward_router_address": router,
        "reward_model_tokenizer": workshop.decoder.tokenizer if router else None,
        "num_examine": 0,
        "reward_fn_key": "data_source",
    }


_VERL = ("config", "tokenizer", "compute_score", "reward_router_address", "reward_model_tokenizer")
_OLDER = ("num_examine", "reward_fn_key")


def _accepted(made: Any, offered: dict[str, Any]) -> dict[str, Any]:
    """verl's five keywords where the class takes any, the older ones where it names them."""
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return {name: offered[name] for name in _VERL}
    named = {each.name for each in parameters}
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        named |= set(_VERL)
    return {name: offered[name] for name in (*_VERL, *_OLDER) if name in named}


def _read(value: Any) -> Verdict:
    """`reward_score` with its extra info, or the older `reward_tensor`. Raises BadScore."""
    if isinstance(value, Mapping) and "reward_score" in value:
        info = value.get("reward_extra_info") or {}
        extra = {str(key): plain(item, str(key)) for key, item in dict(info).items()}
        score = value["reward_score"]
        return Verdict(None if score is None else number(score, "reward_score"), extra)
    if isinstance(value, Mapping) and "reward_tensor" in value:
        extra = {
            str(key): plain(items[-1], str(key))
            for key, items in dict(value.get("reward_extra_info") or {}).items()
            if len(items)
        }
        return Verdict(_of_tensor(value["reward_tensor"]), extra)
    if hasattr(value, "shape") and len(value.shape) == 2:
        return Verdict(_of_tensor(value), {})
    raise BadScore(f"the manager returned a {type(value).__name__} without reward_score")


def _of_tensor(tensor: Any) -> float:
    """The last row's sum: its reward stands on one token."""
    return number(tensor[-1].sum(), "reward_tensor")
