"""What a worker process says about the code and the limits it scores with."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from worker.rewards.registry import PREFIX as BUILTIN
from worker.scoring.functions import load
from worker.settings import RewardFields, Settings, SettingsError


def describe(settings: Settings) -> dict[str, str]:
    """Return `settings`, `functions` and `limits` as `queue_client.protocol` describes them."""
    functions: dict[str, str] = {}
    limits: set[str] = set()
    for fields in (settings.reward, *settings.reward.sources.values()):
        limits |= {fields.limit} if fields.limit else set()
        for spec in _specs(fields):
            functions[spec], takes_limits = _describe(spec)
            limits |= set(settings.limits) if takes_limits else set()
    return {
        "settings": settings_hash(settings),
        "functions": json.dumps(functions, sort_keys=True),
        "limits": json.dumps(sorted(limits)),
    }


def settings_hash(settings: Settings) -> str:
    """A hash of everything that decides a reward; where Redis is does not."""
    text = settings.model_dump_json(exclude={"redis"})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _specs(fields: RewardFields) -> Iterable[str]:
    for spec in (fields.function, fields.manager):
        if spec and (":" in spec or spec.startswith(BUILTIN)):
            yield spec


def _describe(spec: str) -> tuple[str, bool]:
    try:
        function = load(spec)
    except SettingsError as error:
        return f"error: {error}", False
    return _source_hash(function), _names_limits(function)


def _source_hash(function: Callable[..., Any]) -> str:
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
    except (TypeError, ValueError):
        path = inspect.getsourcefile(type(function))
    if path is None:
        return "error: its source cannot be found"
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _names_limits(function: Callable[..., Any]) -> bool:
    try:
        return "limits" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
