"""A batch as managers written for verl expect it, without verl: `data[-1:]`, `data[0].batch[...]`.

The layout is verl's classic one (prompts left, responses right), whatever the producer's was: the
only one in which `attention_mask[-R:].sum()` is the response length of every row. Lengths stand in
`non_tensor_batch["prompt_len"]` and `["response_len"]` besides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from queue_client.batch import TrajectoryBatch
from queue_client.padding import TENSORS, Padding
from queue_client.trajectory import Output, Trajectory

Backend = Literal["auto", "numpy", "torch"]
Encode = Callable[[str], Sequence[int]]


class Tensors(MutableMapping[str, Any]):
    """Padded tensors by verl's names, each built when it is first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]], rows: int) -> None:
        """Take a maker for each name and the number of rows."""
        self._makers: dict[str, Callable[[], Any]] = dict(makers)
        self._made: dict[str, Any] = {}
        self._rows = rows

    @property
    def batch_size(self) -> tuple[int, ...]:
        """The leading dimension, as a TensorDict tells it."""
        return (self._rows,)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._makers[name] = lambda: value
        self._made[name] = value

    def __delitem__(self, name: str) -> None:
        del self._makers[name]
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def taken(self, index: Any, rows: int) -> Tensors:
        """Return the same tensors for some rows."""

        def maker(name: str) -> Callable[[], Any]:
            return lambda: self[name][index]

        return Tensors({name: maker(name) for name in self}, rows)


@dataclass(slots=True)
class ItemView:
    """One row: tensors without their first dimension, fields as plain values."""

    batch: Tensors
    non_tensor_batch: dict[str, Any]
    meta_info: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class BatchView:
    """Rows with `batch`, `non_tensor_batch` and `meta_info`; an integer takes one row out.

    Slices, lists, integer and boolean arrays give a smaller view, as in verl.
    """

    batch: Tensors
    non_tensor_batch: dict[str, NDArray[np.object_]]
    meta_info: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.batch.batch_size[0]

    def __iter__(self) -> Iterator[ItemView]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            row = range(len(self))[index]
            fields = {name: column[row] for name, column in self.non_tensor_batch.items()}
            return ItemView(self.batch.taken(row, 0), fields, self.meta_info)
        if not isinstance(index, slice):
            if hasattr(index, "tolist"):
                index = index.tolist()
            index = np.asarray(index, bool if index and isinstance(index[0], bool) else np.int64)
        rows = len(np.arange(len(self))[index])
        columns = {name: column[index] for name, column in self.non_tensor_batch.items()}
        return BatchView(self.batch.taken(index, rows), columns, self.meta_info)


def view_of(
    batch: TrajectoryBatch | Trajectory,
    *,
    backend: Backend = "auto",
    encode: Encode | None = None,
    meta_info: Mapping[str, Any] | None = None,
) -> BatchView:
    """Return a view of a batch, or of one trajectory, with fields copied for each row.

    `backend="auto"` gives torch tensors if the process has imported torch already, else numpy.
    `encode` turns the text of an output without response ids into ids; without it such a row has
    length 0.
    """
    if isinstance(batch, Trajectory):
        batch = TrajectoryBatch.pad([batch])
    if encode is not None:
        batch = _encoded(batch, encode)
    padded = _classic(batch)
    finish = _torch if _wants_torch(backend) else _same
    names = [*TENSORS, *(name for name in batch.given if name not in TENSORS)]

    def maker(name: str) -> Callable[[], Any]:
        return lambda: finish(padded.tensor(name))

    return BatchView(
        Tensors({name: maker(name) for name in names}, len(padded)),
        _columns([_fields(*row) for row in _rows(padded)]),
        dict(meta_info or {}),
    )


def _classic(batch: TrajectoryBatch) -> TrajectoryBatch:
    kept = batch.padding
    padding = Padding(prompt_pad=kept.prompt_pad, response_pad=kept.response_pad).fitted(
        batch.prompt_lens.tolist(), batch.response_lens.tolist()
    )
    given = {name: array for name, array in batch.given.items() if name not in TENSORS}
    return TrajectoryBatch(batch.trajectories, padding=padding, given=given)


def _encoded(batch: TrajectoryBatch, encode: Encode) -> TrajectoryBatch:
    return TrajectoryBatch.pad(
        replace(one, outputs=[_with_ids(output, encode) for output in one.outputs])
        for one in batch.trajectories
    )


def _with_ids(output: Output, encode: Encode) -> Output:
    if output.response_ids is not None or output.text is None:
        return output
    return Output(output.prompt_ids, encode(output.text), None, output.text)


def _rows(batch: TrajectoryBatch) -> Iterator[tuple[Trajectory, int, int]]:
    lens = iter(zip(batch.prompt_lens.tolist(), batch.response_lens.tolist(), strict=True))
    for trajectory in batch.trajectories:
        for _ in trajectory.outputs:
            yield trajectory, *next(lens)


def _fields(trajectory: Trajectory, prompt_len: int, response_len: int) -> dict[str, Any]:
    """Return one row's fields under verl's names; absent where verl leaves them absent."""
    fields: dict[str, Any] = _copied(trajectory.extra_fields)
    fields["data_source"] = trajectory.data_source
    fields["reward_model"] = {
        **fields.get("reward_model", {}),
        "ground_truth": _copied(trajectory.ground_truth),
    }
    fields["extra_info"] = _copied(trajectory.extra_info)
    tool_fields = dict(fields.get("tool_extra_fields") or {})
    for name in ("turn_scores", "tool_rewards"):
        if getattr(trajectory, name) is not None:
            tool_fields[name] = _copied(getattr(trajectory, name))
    if tool_fields:
        fields["tool_extra_fields"] = tool_fields
    for name, value in (
        ("raw_prompt", trajectory.messages),
        ("uid", trajectory.uid),
        ("session_id", trajectory.session_id),
        ("__num_turns__", trajectory.num_turns),
    ):
        if value is not None:
            fields[name] = _copied(value)
    fields["prompt_len"], fields["response_len"] = prompt_len, response_len
    return fields


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, NDArray[np.object_]]:
    """Return one-dimensional object arrays: numpy would turn lists of messages into two."""
    names = {name: None for row in rows for name in row}
    columns = {}
    for name in names:
        column = np.empty(len(rows), object)
        for place, row in enumerate(rows):
            column[place] = row.get(name)
        columns[name] = column
    return columns


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value


def _wants_torch(backend: Backend) -> bool:
    if backend not in ("auto", "numpy", "torch"):
        raise ValueError(f"backend must be auto, numpy or torch, got {backend!r}")
    return backend == "torch" or (backend == "auto" and "torch" in sys.modules)


def _same(array: NDArray[Any]) -> Any:
    return array


def _torch(array: NDArray[Any]) -> Any:
    import importlib

    return importlib.import_module("torch").from_numpy(
        array if array.flags.writeable else array.copy()
    )
