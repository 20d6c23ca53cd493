"""Response masks and position ids on the wire, for the rows that have any of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import WireError
from queue_client.token_ids import MAX_AXES
from queue_client.trajectory import Output
from queue_client.wire_numbers import pack_vector, unpack_vector

_FLAT = -1  # instead of a number of axes: positions of one dimension


def pack_masks(outputs: Sequence[Output]) -> list[Any] | None:
    """Return `[counts, runs]`: masks as alternating runs, sampled tokens first.

    A count is 0 for a row without a mask, else the number of its runs plus 1.
    None where no row has a mask.
    """
    masks: list[Any] = [one.response_mask for one in outputs]
    if all(mask is None for mask in masks):
        return None
    runs = [None if mask is None else _runs(mask) for mask in masks]
    counts = np.array([0 if one is None else len(one) + 1 for one in runs], np.int64)
    return [pack_vector(counts), pack_vector(_joined([one for one in runs if one is not None]))]


def unpack_masks(packed: Any, lens: Sequence[int]) -> list[NDArray[np.uint8] | None]:
    """Return a mask or None for each row of these lengths; raises WireError where runs differ."""
    count_vector, run_vector = _pair(packed, "masks")
    counts: list[int] = unpack_vector(count_vector, "masks.counts", length=len(lens)).tolist()
    if min(counts, default=0) < 0:
        raise WireError("masks.counts holds a negative number")
    expected = sum(counts) - sum(map(bool, counts))
    runs = unpack_vector(run_vector, "masks.runs", length=expected)
    if runs.size and runs.min() < 0:
        raise WireError("masks.runs holds a negative length")
    masks: list[NDArray[np.uint8] | None] = []
    begin = 0
    for row, (count, size) in enumerate(zip(counts, lens, strict=True)):
        if count == 0:
            masks.append(None)
            continue
        piece = runs[begin : begin + count - 1]
        begin += count - 1
        if int(piece.sum(dtype=np.int64)) != size:
            raise WireError(f"masks.runs of row {row} do not cover its response of {size}")
        values = np.zeros(len(piece), np.uint8)
        values[0::2] = 1
        masks.append(np.repeat(values, piece))
    return masks


def pack_positions(outputs: Sequence[Output]) -> list[Any] | None:
    """Return `[axes, steps]`: positions as steps from one token to the next.

    A row has as many axes as its positions, -1 for positions of one dimension, and 0 where they
    count from 0. None where all do.
    """
    rows: list[Any] = [one.position_ids for one in outputs]
    if all(positions is None for positions in rows):
        return None
    axes = [0 if one is None else _FLAT if one.ndim == 1 else one.shape[0] for one in rows]
    steps = [np.diff(one, axis=-1, prepend=0).reshape(-1) for one in rows if one is not None]
    return [pack_vector(np.array(axes, np.int64)), pack_vector(_joined(steps))]


def unpack_positions(packed: Any, totals: Sequence[int]) -> list[NDArray[np.int64] | None]:
    """Return positions [k, n] or [n] or None for each row of n tokens; raises WireError."""
    axis_vector, step_vector = _pair(packed, "positions")
    axes: list[int] = unpack_vector(axis_vector, "positions.axes", length=len(totals)).tolist()
    if any(not _FLAT <= axis <= MAX_AXES for axis in axes):
        raise WireError(f"positions.axes holds a number outside {_FLAT} to {MAX_AXES}")
    if len({axis for axis in axes if axis > 0}) > 1:
        raise WireError("positions.axes differ from row to row")
    sizes = [abs(axis) * total for axis, total in zip(axes, totals, strict=True)]
    steps = unpack_vector(step_vector, "positions.steps", length=sum(sizes))
    rows: list[NDArray[np.int64] | None] = []
    begin = 0
    for axis, size, total in zip(axes, sizes, totals, strict=True):
        if axis == 0:
            rows.append(None)
            continue
        shape = (total,) if axis == _FLAT else (axis, total)
        piece = steps[begin : begin + size].reshape(shape)
        rows.append(np.cumsum(piece, axis=-1, dtype=np.int64))
        begin += size
    return rows


def _runs(mask: NDArray[Any]) -> NDArray[np.int64]:
    edges = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    first = [0] if len(mask) and mask[0] == 0 else []
    borders = np.concatenate((first, [0], edges, [len(mask)])).astype(np.int64)
    return borders[1:] - borders[:-1]


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _pair(packed: Any, name: str) -> list[Any]:
    if type(packed) is not list or len(packed) != 2:
        raise WireError(f"{name} is no pair of vectors")
    return packed
