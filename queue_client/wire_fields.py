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
FIELDS = (
    "data_source",
    "ground_truth",
    "extra_info",
    "uid",
    "session_id",
    "messages",
    "num_turns",
    "tool_rewards",
    "turn_scores",
    "extra_fields",
)
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
        unpack(packed)
    except (TypeError, ValueError, OverflowError) as error:
        raise _culprit(trajectories, error) from None
    return packed


def unpack_fields(packed: Any, count: int) -> list[Trajectory]:
    """Return `count` trajectories without outputs; raises WireError for anything else."""
    if type(packed) is not bytes:
        raise WireError("fields is no packed map of columns")
    columns = unpack(packed)
    if type(columns) is not dict or columns.keys() - set(FIELDS):
        raise WireError("fields is no map of known columns")
    values = [_column(columns, name, count) for name in FIELDS]
    return [Trajectory([], *row) for row in zip(*values, strict=True)]


def _column(columns: dict[str, Any], name: str, count: int) -> list[Any]:
    if name not in columns:
        return [{} for _ in range(count)] if name in _MAPS else [None] * count
    column = columns[name]
    if type(column) is list and len(column) == 1 != count and type(column[0]) is str:
        return column * count
    if type(column) is not list or len(column) != count:
        raise WireError(f"fields.{name} is no column of {count} values")
    if name in _MAPS and any(type(value) is not dict for value in column):
        raise WireError(f"fields.{name} holds something other than maps")
    return column


def _culprit(trajectories: Sequence[Trajectory], error: Exception) -> BadTrajectory:
    """Find what made packing fail, to name it."""
    for row, trajectory in enumerate(trajectories):
        for name, getter in _GETTERS:
            try:
                unpack(pack(plain(getter(trajectory), name)))
            except NotPlain as reason:
                return BadTrajectory(f"row {row}: {reason}")
            except (TypeError, ValueError, OverflowError, RecursionError) as reason:
                return BadTrajectory(f"row {row}: {name} cannot travel: {reason}")
    return BadTrajectory(f"fields cannot travel: {error}")
