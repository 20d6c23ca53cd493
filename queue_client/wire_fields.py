"""A trajectory's fields on the wire: a column each, a value that all rows share only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from queue_client.errors import BadTrajectory, WireError
from queue_client.plain import NotPlain, plain
from queue_client.trajectory import Trajectory
from queue_client.wire_document import pack, unpack

_MAPS = frozenset({"extra_info", "extra_fields"})
_NULL = type(None)
#: The fields in the order of the class, and the types each may have on arrival; empty: any plain.
_TYPES: dict[str, frozenset[type]] = {
    "data_source": frozenset({str, _NULL}),
    "ground_truth": frozenset(),
    "extra_info": frozenset({dict}),
    "uid": frozenset({str, int, _NULL}),
    "session_id": frozenset({int, str, _NULL}),
    "messages": frozenset({list, _NULL}),
    "num_turns": frozenset({int, _NULL}),
    "tool_rewards": frozenset({list, _NULL}),
    "turn_scores": frozenset({list, _NULL}),
    "extra_fields": frozenset({dict}),
}
FIELDS = tuple(_TYPES)
_GETTERS: tuple[tuple[str, Callable[[Trajectory], Any]], ...] = tuple(
    (name, attrgetter(name)) for name in FIELDS
)
_NONE = {type(None)}
_TEXT = {str}


def pack_fields(trajectories: Sequence[Trajectory]) -> bytes:
    """Return the columns as msgpack of their own, known to be readable on the other side.

    A column is `[value]` where all rows share one text, else a list of a value each; a column of
    nothing but None (or of empty maps) is left out.
    Raises BadTrajectory that names row, field and value.
    """
    columns: dict[str, list[Any]] = {}
    for name, getter in _GETTERS:
        column = list(map(getter, trajectories))
        if name in _MAPS:
            if any(column):
                columns[name] = column
            continue
        kinds = set(map(type, column))
        if kinds == _NONE or not kinds:
            continue
        if kinds == _TEXT and column.count(column[0]) == len(column):
            column = column[:1]
        columns[name] = column
    try:
        packed = pack(columns)
        _read(packed, len(trajectories))
    except (TypeError, ValueError, OverflowError) as error:
        raise _culprit(trajectories, error) from None
    return packed


def unpack_fields(packed: Any, count: int) -> list[Trajectory]:
    """Return `count` trajectories without outputs; raises WireError for anything else."""
    if type(packed) is not bytes:
        raise WireError("fields is no packed map of columns")
    columns = _read(packed, count)
    values = [
        columns.get(name) or ([{} for _ in range(count)] if name in _MAPS else [None] * count)
        for name in FIELDS
    ]
    return [Trajectory([], *row) for row in zip(*values, strict=True)]


def _read(packed: bytes, count: int) -> dict[str, list[Any]]:
    columns = unpack(packed)
    if type(columns) is not dict or columns.keys() - _TYPES.keys():
        raise WireError("fields is no map of known columns")
    return {name: _column(name, column, count) for name, column in columns.items()}


def _column(name: str, column: Any, count: int) -> list[Any]:
    if type(column) is list and len(column) == 1 != count and type(column[0]) is str:
        column = column * count
    if type(column) is not list or len(column) != count:
        raise WireError(f"fields.{name} is no column of {count} values")
    allowed = _TYPES[name]
    wrong = set(map(type, column)) - allowed if allowed else None
    if wrong:
        raise WireError(f"{name} is {min(kind.__name__ for kind in wrong)}")
    if name == "messages":
        for messages in column:
            if messages and set(map(type, messages)) != {dict}:
                raise WireError("messages is no list of maps")
    return column


def _culprit(trajectories: Sequence[Trajectory], error: Exception) -> BadTrajectory:
    """Find what made packing fail, to name it."""
    for row, trajectory in enumerate(trajectories):
        for name, getter in _GETTERS:
            try:
                _read(pack({name: [plain(getter(trajectory), name)]}), 1)
            except (NotPlain, WireError) as reason:
                return BadTrajectory(f"row {row}: {reason}")
            except (TypeError, ValueError, OverflowError) as reason:
                return BadTrajectory(f"row {row}: {name} cannot travel: {reason}")
    return BadTrajectory(f"fields cannot travel: {error}")
