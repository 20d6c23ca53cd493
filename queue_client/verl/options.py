"""What a verl user writes under `reward.reward_kwargs`, checked."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from queue_client.client import RewardClient
from queue_client.from_verl import Images
from queue_client.options import NoWorkerPolicy, check_queue, check_timeout
from queue_client.protocol import DEFAULT_QUEUE
from queue_client.shared import shared_client

OnFailure = Literal["raise", "zero", "nan"]
URL_VARIABLES = ("REWARDPOOL_REDIS__URL", "REDIS_URL")
#: Keys of verl's own managers: they steer the reward, which is the workers' business here.
_WORKERS_KEYS = frozenset({"max_resp_len", "overlong_buffer_cfg"})


@dataclass(frozen=True, slots=True)
class VerlOptions:
    """How rows travel and what becomes of failed ones.

    `redis_url` comes from REWARDPOOL_REDIS__URL or REDIS_URL where it is not given. `on_failure`:
    `raise` NoReward, `zero` or `nan` as the reward. `extra_keys` names fields of the reward
    function that get a column of their own, beside `acc`, `score` and `pred`. `timeout_s` bounds
    a trajectory's way through the pool, queue included. `images="refuse"` fails rows whose prompt
    holds images; `drop` scores their text, which is all that verl's own managers hand on.
    Raises ValueError with the key and the value.
    """

    redis_url: str = field(default="", repr=False)
    queue: str = DEFAULT_QUEUE
    timeout_s: float | None = 3600.0
    on_failure: OnFailure = "raise"
    extra_keys: tuple[str, ...] = ()
    images: Images = "drop"
    no_worker: NoWorkerPolicy = "wait"
    rows_per_job: int = 32
    max_in_flight: int = 16_384

    def __post_init__(self) -> None:
        if not self.redis_url:
            object.__setattr__(self, "redis_url", _url_from_environment())
        object.__setattr__(self, "extra_keys", _names(self.extra_keys))
        check_queue(self.queue)
        check_timeout(self.timeout_s)
        for name, allowed in (("on_failure", OnFailure), ("images", Images)):
            if getattr(self, name) not in get_args(allowed):
                choices = " | ".join(get_args(allowed))
                raise ValueError(f"{name}: {choices} expected (got {getattr(self, name)!r})")
        self.client()  # the rest is checked there

    def client(self) -> RewardClient:
        """The process' client for these options; nothing connects before the first row."""
        return shared_client(
            self.redis_url,
            queue=self.queue,
            rows_per_job=self.rows_per_job,
            max_in_flight=self.max_in_flight,
            no_worker=self.no_worker,
        )


def options_from(given: Mapping[str, Any], *, where: str) -> VerlOptions:
    """Read a mapping (OmegaConf's too); unknown keys are refused with the nearest known one."""
    known = [one.name for one in fields(VerlOptions)]
    kept: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"{where}.{key}: {_advice(str(key), known)}")
        kept[str(key)] = value
    try:
        return VerlOptions(**kept)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def section(config: Any, *path: str) -> Any:
    """Return what stands at a path of nested mappings, or None."""
    for name in path:
        if not isinstance(config, Mapping) or name not in config:
            return None
        config = config[name]
    return config


def _advice(key: str, known: list[str]) -> str:
    if key in _WORKERS_KEYS:
        return "rewards are computed by the workers: set it in their [reward.kwargs]"
    near = difflib.get_close_matches(key, known, n=1)
    return f"unknown key, did you mean {near[0]!r}?" if near else f"unknown key, there are {known}"


def _url_from_environment() -> str:
    for name in URL_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    raise ValueError(f"redis_url: an address expected, here or in {' or '.join(URL_VARIABLES)}")


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"extra_keys: a list of names expected (got {value!r})")
    if wrong := [name for name in value if not isinstance(name, str) or not name]:
        raise ValueError(f"extra_keys: a list of names expected (got {wrong[0]!r} in it)")
    return tuple(value)
