"""Token ids, masks and positions as numpy arrays, from lists, numpy arrays or torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import BadTrajectory
from queue_client.trajectory import Output

#: Position ids of more axes than this are a mistake (M-RoPE has 3 or 4).
MAX_AXES = 8
_NARROW = np.iinfo(np.int32)


def as_array(value: Any, name: str) -> NDArray[Any]:
    """Return a list, numpy array or torch tensor (any device) as a numpy array, uncopied if it can.

    Raises BadTrajectory, naming `name`, for what is ragged or holds no numbers.
    """
    if getattr(value, "is_nested", False):
        raise BadTrajectory(f"{name} is a nested tensor: pad its rows first")
    try:
        if hasattr(value, "detach"):  # torch, without importing it
            value = value.detach().cpu()
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise BadTrajectory(f"{name} is no array: {error}") from None


def as_integers(value: Any, name: str) -> NDArray[Any]:
    """Return whole numbers [n]; raises BadTrajectory for another shape or type."""
    array = as_array(value, name)
    if array.ndim != 1:
        raise BadTrajectory(f"{name} has shape {list(array.shape)}, expected one dimension")
    if array.dtype.kind in "iu":
        if array.dtype.itemsize == 8 and array.dtype.kind == "u" and array.size:
            highest = int(array.max())
            if highest > np.iinfo(np.int64).max:
                raise BadTrajectory(f"{name} holds {highest}, more than 64 bits")
        return array
    if not array.size:
        return np.zeros(0, np.int64)
    raise BadTrajectory(f"{name} holds {array.dtype} values, expected integers")


def as_ids(value: Any, name: str) -> NDArray[Any]:
    """Return token ids [n] as int32, or as int64 where they do not fit."""
    array = as_integers(value, name)
    if array.dtype == np.int32:
        return array
    if array.dtype.itemsize < 4 or not array.size:
        return array.astype(np.int32)
    if array.min() >= _NARROW.min and array.max() <= _NARROW.max:
        return array.astype(np.int32)
    return array.astype(np.int64)


def as_mask(value: Any, length: int, name: str) -> NDArray[np.uint8]:
    """Return a response mask [length] of 0 and 1, uint8; raises BadTrajectory otherwise."""
    array = as_array(value, name)
    if array.shape != (length,):
        raise BadTrajectory(f"{name} has shape {list(array.shape)}, the response has {length}")
    mask = array.astype(np.uint8)
    if not ((array == 0) | (array == 1)).all():
        raise BadTrajectory(f"{name} holds values other than 0 and 1")
    return mask


def as_positions(value: Any, length: int, name: str) -> NDArray[np.int64]:
    """Return position ids [length] or [k, length], int64; raises BadTrajectory otherwise."""
    array = as_array(value, name)
    if array.ndim not in (1, 2) or array.shape[-1] != length:
        raise BadTrajectory(
            f"{name} has shape {list(array.shape)}, expected [{length}] or [k, {length}]"
        )
    if array.ndim == 2 and array.shape[0] > MAX_AXES:
        raise BadTrajectory(f"{name} has {array.shape[0]} axes, at most {MAX_AXES} travel")
    if array.size and array.dtype.kind not in "iu":
        raise BadTrajectory(f"{name} holds {array.dtype} values, expected integers")
    return array.astype(np.int64)


def checked(output: Output, name: str) -> Output:
    """Return the output with its ids, mask and positions as arrays, all lengths agreeing."""
    prompt = output.prompt_ids
    response = output.response_ids
    if prompt is None and response is None and output.position_ids is not None:
        raise BadTrajectory(f"{name} has position_ids, but no ids")
    prompt_ids = None if prompt is None else as_ids(prompt, f"{name}.prompt_ids")
    response_ids = None if response is None else as_ids(response, f"{name}.response_ids")
    response_len = 0 if response_ids is None else len(response_ids)
    total = response_len + (0 if prompt_ids is None else len(prompt_ids))
    mask = None
    if output.response_mask is not None:
        masked = len(output.text or "") if response_ids is None else response_len
        mask = as_mask(output.response_mask, masked, f"{name}.response_mask")
    positions = output.position_ids
    if positions is not None:
        positions = as_positions(positions, total, f"{name}.position_ids")
        if positions.ndim == 1 and np.array_equal(positions, np.arange(total)):
            positions = None  # follows from the lengths
    return Output(prompt_ids, response_ids, mask, output.text, positions)
