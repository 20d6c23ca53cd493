"""What a reward function returned, as plain Python: a reward and its extra fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

from queue_client.outcome import Kind
from worker.rewards.errors import RewardFailure

MAX_DEPTH = 24


class BadScore(RewardFailure):
    """The reward function returned what cannot be a reward; mend the function."""

    kind = Kind.BAD_SCORE


@dataclass(slots=True)
class Verdict:
    """A reward with what was said beside it; `reward` None means skipped.

    `usage` is the tokens the call really took, None if the function did not say.
    """

    reward: float | None
    extra: dict[str, Any] = field(default_factory=dict)
    usage: int | None = None


def verdict(value: Any) -> Verdict:
    """Read a number, a dict with `score`, a tuple (score, ...), or None. Raises BadScore.

    Extra fields are verl's: a dict's keys all of them, `acc` for a bare number.
    """
    if type(value) is float and math.isfinite(value):
        return Verdict(value, {"acc": value})
    if value is None:
        return Verdict(None)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, tuple):
        return _from_tuple(value)
    reward = number(value, "the reward")
    return Verdict(reward, {"acc": reward})


def _from_mapping(value: Mapping[Any, Any]) -> Verdict:
    if "score" not in value:
        keys = ", ".join(repr(key) for key in list(value)[:8])
        raise BadScore(f"the returned dict has no 'score', only {keys or 'nothing'}")
    extra = {str(key): plain(item, str(key)) for key, item in value.items()}
    score = value["score"]
    reward = None if score is None else number(score, "score")
    if reward is not None:
        extra["score"] = reward
    return Verdict(reward, extra, _usage(value.get("usage")))


def _from_tuple(value: tuple[Any, ...]) -> Verdict:
    if not value:
        raise BadScore("the returned tuple is empty")
    first = verdict(value[0])
    for item in value[1:]:
        if isinstance(item, Mapping):
            first.extra.update({str(k): plain(v, str(k)) for k, v in item.items()})
            first.usage = _usage(item.get("usage")) or first.usage
    return first


def _usage(value: Any) -> int | None:
    """Tokens used: a number, or the `usage` object of an OpenAI-compatible reply."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = value.get("total_tokens")
    elif hasattr(value, "total_tokens"):
        value = value.total_tokens
    if value is None:
        return None
    tokens = number(value, "usage")
    if tokens < 0:
        raise BadScore(f"usage: {tokens:g} is below zero")
    return math.ceil(tokens)


def number(value: Any, where: str) -> float:
    """One finite number, from whatever numeric type. Raises BadScore."""
    if isinstance(value, bool | int | float | Decimal | Fraction):
        return _finite(value, where)
    item = getattr(value, "item", None)  # numpy and torch scalars, without importing either
    if callable(item) and not isinstance(value, str | bytes):
        try:
            return _finite(item(), where)
        except BadScore:
            raise
        except Exception as error:
            raise BadScore(f"{where}: not one number: {error}") from None
    raise BadScore(f"{where}: a {type(value).__name__} is not a number")


def _finite(value: Any, where: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadScore(f"{where}: not a number: {error}") from None
    if not math.isfinite(found):
        raise BadScore(f"{where}: {found} is not finite")
    return found


def plain(value: Any, where: str = "extra", depth: int = 0) -> Any:
    """Return plain scalars, lists and dicts for numpy, torch, enums and the like.

    Raises BadScore with the key for NaN, infinity, cycles and what cannot be plain.
    """
    if value is None or (isinstance(value, str) and type(value) is str):
        return value
    if isinstance(value, Enum):
        return plain(value.value, where, depth + 1)
    if isinstance(value, bool | int | float):
        return _plain_number(value, where)
    if isinstance(value, str):
        return str(value)
    if depth > MAX_DEPTH:
        raise BadScore(f"{where}: nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{where}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, where, depth + 1) for item in value]
    return _plain_object(value, where, depth)


def _plain_number(value: bool | int | float, where: str) -> bool | int | float:
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    return _finite(value, where)


def _plain_object(value: Any, where: str, depth: int) -> Any:
    if isinstance(value, Decimal | Fraction):
        return _finite(value, where)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    for convert in ("tolist", "model_dump"):  # numpy and torch arrays; pydantic models
        method = getattr(value, convert, None)
        if callable(method):
            try:
                return plain(method(), where, depth + 1)
            except BadScore:
                raise
            except Exception as error:
                raise BadScore(f"{where}: {type(value).__name__}: {error}") from None
    raise BadScore(f"{where}: a {type(value).__name__} is not plain data")
