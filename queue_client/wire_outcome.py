"""Outcomes on the wire: one, or many of one job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from queue_client.errors import WireError
from queue_client.outcome import Kind, Outcome
from queue_client.plain import NotPlain, plain
from queue_client.wire_document import pack_message, unpack_message

_KINDS = {str(kind): kind for kind in Kind}
_STATUSES = ("scored", "failed")
_WIDTH = 10


def encode_outcome(outcome: Outcome) -> bytes:
    """Return one outcome as bytes; raises WireError that names what in `extra` cannot travel."""
    return _packed("outcome", outcome, _values)


def decode_outcome(data: bytes) -> Outcome:
    """Return the outcome; raises WireError for anything else."""
    body = unpack_message(data, "outcome")
    if len(body) != 1:
        raise WireError(f"outcome message has {len(body)} parts, expected 1")
    return _outcome(body[0])


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """Return many outcomes as one message, in order."""
    return _packed("outcomes", outcomes, lambda many: [_values(one) for one in many])


def decode_outcomes(data: bytes) -> list[Outcome]:
    """Return the outcomes in order; raises WireError for anything else."""
    body = unpack_message(data, "outcomes")
    if len(body) != 1 or type(body[0]) is not list:
        raise WireError("outcomes message has no list of outcomes")
    return [_outcome(values) for values in body[0]]


def _packed(kind: str, value: Any, values: Any) -> bytes:
    try:
        return pack_message(kind, values(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"{kind} cannot be sent: {error}") from None


def _values(outcome: Outcome) -> list[Any]:
    return [
        outcome.status,
        outcome.reward,
        plain(outcome.extra, "extra") if outcome.extra else None,
        outcome.kind,
        outcome.message,
        outcome.retryable,
        outcome.attempts,
        outcome.wait_s,
        outcome.run_s,
        outcome.uid,
    ]


def _outcome(values: Any) -> Outcome:
    if type(values) is not list or len(values) != _WIDTH:
        raise WireError(f"outcome is no list of {_WIDTH} values")
    status, reward, extra, kind, message, retryable, attempts, wait_s, run_s, uid = values
    if status not in _STATUSES:
        raise WireError("outcome.status is neither scored nor failed")
    if (kind is None) is not (status == "scored"):
        raise WireError("outcome.kind is there exactly when it failed")
    if kind is not None:
        kind = _KINDS.get(kind) if type(kind) is str else None
        if kind is None:
            raise WireError("outcome.kind is unknown")
    _check("reward", reward, (float, int, type(None)))
    _check("extra", extra, (dict, type(None)))
    _check("message", message, (str,))
    _check("retryable", retryable, (bool,))
    _check("attempts", attempts, (int,))
    _check("wait_s", wait_s, (float, int))
    _check("run_s", run_s, (float, int))
    _check("uid", uid, (str, int, type(None)))
    return Outcome(
        status, reward, extra or {}, kind, message, retryable, attempts, wait_s, run_s, uid
    )


def _check(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds:
        raise WireError(f"outcome.{name} is {type(value).__name__}")
    if type(value) is float and not math.isfinite(value):
        raise WireError(f"outcome.{name} is {value}")


__all__ = ["NotPlain", "decode_outcome", "decode_outcomes", "encode_outcome", "encode_outcomes"]
