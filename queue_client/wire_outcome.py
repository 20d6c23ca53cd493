"""Outcomes on the wire: one, or many of one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import isfinite
from typing import Any

from queue_client.errors import WireError
from queue_client.outcome import Kind, Outcome
from queue_client.plain import NotPlain, plain
from queue_client.wire_document import pack_message, unpack_message

_KINDS = {str(kind): kind for kind in Kind}
_NUMBER = frozenset({float})
#: The fields in the order in which they travel, and the types each may have.
_FIELDS: tuple[tuple[str, frozenset[type]], ...] = (
    ("status", frozenset({str})),
    ("reward", _NUMBER | {type(None)}),
    ("extra", frozenset({dict})),
    ("kind", frozenset({str, type(None)})),
    ("message", frozenset({str})),
    ("retryable", frozenset({bool})),
    ("attempts", frozenset({int})),
    ("wait_s", _NUMBER),
    ("run_s", _NUMBER),
    ("uid", frozenset({str, int, type(None)})),
)
_KIND = 3
_NUMBERS = (1, 7, 8)
_SHAPES = frozenset(product(*(kinds for _, kinds in _FIELDS)))


def encode_outcome(outcome: Outcome) -> bytes:
    """Return one outcome as bytes; raises WireError that names what in `extra` cannot travel."""
    return _packed("outcome", lambda: _values(outcome))


def decode_outcome(data: bytes) -> Outcome:
    """Return the outcome; raises WireError for anything else."""
    body = unpack_message(data, "outcome")
    if len(body) != 1:
        raise WireError(f"outcome message has {len(body)} parts, expected 1")
    return _outcome(body[0])


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """Return many outcomes as one message, in order."""
    return _packed("outcomes", lambda: [_values(one) for one in outcomes])


def decode_outcomes(data: bytes) -> list[Outcome]:
    """Return the outcomes in order; raises WireError for anything else."""
    body = unpack_message(data, "outcomes")
    if len(body) != 1 or type(body[0]) is not list:
        raise WireError("outcomes message has no list of outcomes")
    return [_outcome(values) for values in body[0]]


def _packed(kind: str, pack_values: Callable[[], Any]) -> bytes:
    try:
        return pack_message(kind, pack_values())
    except WireError:
        raise
    except (NotPlain, TypeError, ValueError, OverflowError) as error:
        raise WireError(f"{kind} cannot be sent: {error}") from None


def _values(outcome: Outcome) -> list[Any]:
    values = [
        outcome.status,
        None if outcome.reward is None else float(outcome.reward),
        plain(outcome.extra, "extra"),
        None if outcome.kind is None else str(outcome.kind),
        str(outcome.message),
        bool(outcome.retryable),
        int(outcome.attempts),
        float(outcome.wait_s),
        float(outcome.run_s),
        plain(outcome.uid, "uid"),
    ]
    _check(values)
    return values


def _outcome(values: Any) -> Outcome:
    if type(values) is not list or len(values) != len(_FIELDS):
        raise WireError(f"outcome is no list of {len(_FIELDS)} values")
    _check(values)
    if values[_KIND] is not None:
        values[_KIND] = _KINDS[values[_KIND]]
    return Outcome(*values)


def _check(values: list[Any]) -> None:
    """Refuse what no outcome holds: what one side encodes, the other must be able to read."""
    if tuple(map(type, values)) not in _SHAPES:
        name, found = next(
            (name, type(value).__name__)
            for value, (name, kinds) in zip(values, _FIELDS, strict=True)
            if type(value) not in kinds
        )
        raise WireError(f"outcome.{name} is {found}")
    for place in _NUMBERS:
        if values[place] is not None and not isfinite(values[place]):
            raise WireError(f"outcome.{_FIELDS[place][0]} is {values[place]}")
    status, kind = values[0], values[_KIND]
    if status not in ("scored", "failed"):
        raise WireError("outcome.status is neither scored nor failed")
    if (kind is None) is not (status == "scored"):
        raise WireError("outcome.kind must be there exactly when it failed")
    if kind is not None and kind not in _KINDS:
        raise WireError("outcome.kind is unknown")
    if values[1] is not None and status == "failed":
        raise WireError("outcome.reward must be None when it failed")
