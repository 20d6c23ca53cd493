"""The worker's settings: one frozen object, built at an entry point and passed down.

From `rewardpool.toml` (`--config`, `REWARDPOOL_CONFIG`, or the working directory), then the
environment: every key also as `REWARDPOOL_SECTION__KEY`. Unknown keys are refused.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

PREFIX = "REWARDPOOL_"
FILE = "rewardpool.toml"
NOT_SETTINGS = frozenset({"REWARDPOOL_CONFIG"})

Executor = Literal["auto", "async", "thread", "process"]
RetryKind = Literal[
    "timeout", "limit_timeout", "upstream_error", "upstream_rate_limited", "sandbox_error",
    "scorer_error", "unparseable",
]  # fmt: skip


class SettingsError(ValueError):
    """Settings are wrong; one line that says what and where. Exit code 2."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RedisSettings(_Section):
    """Where Redis is."""

    url: str = Field(
        default="redis://localhost:6379/0", repr=False, description="Redis or Valkey, >= 6.2"
    )


class LimitSettings(_Section):
    """The caps on one named upstream; None is unlimited, 0 closes the gate."""

    max_concurrent: int | None = Field(None, ge=0, description="calls in flight at once")
    rpm: int | None = Field(None, ge=0, description="requests a minute")
    tpm: int | None = Field(None, ge=0, description="tokens a minute")
    burst_s: float | None = Field(
        None, gt=0, description="seconds' worth the buckets hold: 60 by default, 1 under strict"
    )
    strict: bool = Field(False, description="no 60 s ever admit more than the limit")
    oversize: Literal["alone", "error"] = Field(
        "alone", description="a call that costs more than the bucket holds: alone, or an error"
    )
    refund: bool = Field(True, description="give unused tokens back when a call settles")


class PartSettings(_Section):
    """One function of a weighted combination; a bare text is the function."""

    function: str = Field(description="file.py:name, package.module:name or builtin:name")
    weight: float = Field(1.0, allow_inf_nan=False, description="its share in the sum")
    executor: Executor | None = Field(None, description="where this function runs")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="its own keyword arguments")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, given: Any) -> Any:
        return {"function": given} if isinstance(given, str) else given


class ModelSettings(_Section):
    """A reward model: a local folder or hub name, or an endpoint that serves it."""

    path: str | None = Field(None, description="folder or hub name of the classification model")
    url: str | None = Field(None, description="http://host:port of a server that has the model")
    dialect: Literal["vllm", "sglang"] = Field(
        "vllm", description="vllm: POST /classify, sglang: POST /v1/embeddings"
    )
    device: str = Field("auto", description="auto | cpu | cuda | cuda:1")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="weights")
    batch_size: int = Field(16, ge=1, description="rows in one forward pass")
    max_tokens: int | None = Field(
        None, ge=1, description="longer rows fail as bad_input; default: what the model can take"
    )
    api_key: str | None = Field(None, repr=False, description="bearer token for the endpoint")


class RewardFields(_Section):
    """How a row is scored. Other trainers' names of a setting are accepted beside ours."""

    manager: str | None = Field(
        None,
        description="naive | dapo | gdpo | rate_limited | remote | reward_model | file.py:Class",
    )
    function: str | None = Field(
        None,
        description="file.py:name, package.module:name or builtin:name; absent: by data_source",
    )
    functions: dict[str, PartSettings] | None = Field(
        None, description="several functions by name; the reward is their weighted sum"
    )
    weights: dict[str, float] | None = Field(
        None, description="weights of `functions` by name, 1 where not given"
    )
    limit: str | None = Field(None, description="the limit whose lease each row takes")
    tokens: Literal["auto"] | Annotated[int, Field(ge=0)] | str | None = Field(
        None, description="cost of a row: auto (real lengths), a number, or file.py:function"
    )
    max_concurrent: int | None = Field(
        None,
        ge=0,
        description="rate_limited: calls in flight, where no named limit is used",
    )
    rpm: int | None = Field(
        None,
        ge=0,
        description="rate_limited: requests a minute, where no named limit is used",
    )
    tpm: int | None = Field(
        None,
        ge=0,
        description="rate_limited: tokens a minute, where no named limit is used",
    )
    timeout_s: float | None = Field(
        None,
        gt=0,
        description="seconds one try may run, waiting for limits not counted (300)",
    )
    limit_wait_s: float | None = Field(
        None, gt=0, description="seconds one try may wait for limits (as long as the budget)"
    )
    budget_s: float | None = Field(
        None, gt=0, description="seconds a trajectory may take in all, tries and pauses included"
    )
    retries: dict[RetryKind, Annotated[int, Field(ge=0)]] | None = Field(
        None, description="further tries by kind of failure"
    )
    backoff_s: float | None = Field(
        None, gt=0, description="pause before the first further try; doubles, with jitter (1)"
    )
    executor: Executor | None = Field(None, description="where the function runs")
    kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="keyword arguments for the function or manager",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_name_each(cls, given: Any) -> Any:
        return _settle_names(given)


#: Other names of a setting. Both at once are a conflict, whatever the values.
_ALIASES = {
    "max_concurrency": "max_concurrent",
    "max_rpm": "rpm",
    "max_tpm": "tpm",
    "estimated_tokens_per_request": "tokens",
    "estimator": "tokens",
    "timeout": "timeout_s",
    "reward_kwargs": "kwargs",
}


def _settle_names(given: Any) -> Any:
    """Replace other names by ours. Raises ValueError where a setting is given twice."""
    if not isinstance(given, dict):
        return given
    settled = dict(given)
    for other, ours in _ALIASES.items():
        if other not in settled:
            continue
        value = settled.pop(other)
        if ours in settled:
            raise ValueError(f"{ours} and {other} say the same thing twice: keep one")
        settled[ours] = value
    tokens = settled.get("tokens")
    if isinstance(tokens, str) and tokens.strip().isdigit():  # a number from the environment
        settled["tokens"] = int(tokens)
    return settled


class RewardSettings(RewardFields):
    """Scoring: defaults for all rows, and routes by data_source."""

    tokenizer: str | None = Field(None, description="folder or hub name; decodes ids into text")
    reward_model: ModelSettings = ModelSettings()
    sources: dict[str, RewardFields] = Field(
        default_factory=dict, description="by data_source; what is not set comes from [reward]"
    )


class WorkerSettings(_Section):
    """One worker process."""

    concurrency: int = Field(256, ge=1, description="trajectories in flight in one process")
    processes: int = Field(2, ge=1, description="killable helper processes for CPU-bound functions")
    memory_mb: int = Field(
        2048, ge=64, description="what rows may take in one helper process, imports aside, MiB"
    )
    threads: int = Field(64, ge=1, description="threads for sync functions that wait")
    max_attempts: int = Field(3, ge=1, description="starts of one row before it is worker_lost")
    heartbeat_s: float = Field(5, gt=0, description="between two heartbeats")
    expiry_s: int = Field(20, ge=2, description="a worker silent for so long is taken for dead")
    sweep_s: float = Field(10, gt=0, description="between two looks for dead workers' jobs")
    stop_s: float = Field(
        25, ge=0, description="after SIGTERM, rows that are not done by then go back unspent"
    )
    frozen_s: float = Field(
        90, gt=0, description="an event loop that hangs so long leaves its jobs to others"
    )


class SandboxSettings(_Section):
    """Where programs run: for the code reward and for tool calls through the pool."""

    url: str | None = Field(
        None, description="Sandbox Fusion's address; absent: programs run on this machine"
    )
    limit: str = Field("sandbox", description="the limit that each call to the server takes")
    languages: list[str] | None = Field(
        None, description="what tool calls may run; absent: whatever the backend runs"
    )
    max_timeout_s: float = Field(60, gt=0, description="the longest run a tool call may ask for")
    memory_limit_mb: int = Field(1024, ge=16, description="memory of one program, MiB")
    retries: int = Field(5, ge=1, description="calls to the server before it counts as down")
    http_timeout_s: float | None = Field(
        None, gt=0, description="wait for the server; absent: the program's own limits and 10 s"
    )
    allow_unisolated: bool = Field(
        False, description="run programs here without any isolation: no security boundary"
    )
    python: str | None = Field(
        None, description="interpreter for programs here, of a virtual environment for instance"
    )


class Settings(_Section):
    """Everything a worker needs to know."""

    redis: RedisSettings = RedisSettings()
    limits: dict[str, LimitSettings] = Field(default_factory=dict)
    reward: RewardSettings = RewardSettings()
    worker: WorkerSettings = WorkerSettings()
    sandbox: SandboxSettings = SandboxSettings()

    @model_validator(mode="after")
    def _check_sandbox_limit(self) -> Self:
        named = "limit" in self.sandbox.model_fields_set
        if named and self.sandbox.limit not in self.limits:
            near = difflib.get_close_matches(self.sandbox.limit, self.limits, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"sandbox.limit: there is no limit {self.sandbox.limit!r}{hint}")
        return self


def load_settings(
    path: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Settings:
    """Read the file, lay the environment over it, check everything.

    Raises SettingsError with the field, the value and the nearest known name.
    """
    environ = os.environ if environ is None else environ
    chosen = path or environ.get("REWARDPOOL_CONFIG")
    found = Path(chosen) if chosen else Path(FILE)
    tree: dict[str, Any] = {}
    if chosen or found.is_file():
        tree = _read_toml(found)
    _overlay(tree, environ)
    return settings_from(tree, where=str(found) if tree else "environment")


def settings_from(tree: Mapping[str, Any], *, where: str = "settings") -> Settings:
    """Check a tree of settings; `where` begins the error's line."""
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(f"{where}: {_first(error)}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path}: {error}") from None


def _overlay(tree: dict[str, Any], environ: Mapping[str, str]) -> None:
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in NOT_SETTINGS or "__" not in name:
            continue
        *sections, key = name.removeprefix(PREFIX).lower().split("__")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise SettingsError(f"{name}: {section} is not a section")
        node[key] = _parse(value)


def _parse(value: str) -> Any:
    if value[:1] in "[{":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    if not place:  # of the whole: its value would show everything, secrets too
        return str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] != "extra_forbidden":
        return f"{place}: {fault['msg']} (got {fault['input']!r})"
    near = difflib.get_close_matches(str(fault["loc"][-1]), _known(fault["loc"][:-1]), n=1)
    return f"{place}: unknown key" + (f", did you mean {near[0]!r}?" if near else "")


def _known(path: tuple[int | str, ...]) -> list[str]:
    model: Any = Settings
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if inner is None:
            continue  # a name the user chose: the model stays that of the mapping's values
        if get_origin(inner) is UnionType:
            inner = next(each for each in get_args(inner) if each is not NoneType)
        if getattr(inner, "__origin__", None) is dict:
            inner = get_args(inner)[1]
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else model
    return list(model.model_fields)
