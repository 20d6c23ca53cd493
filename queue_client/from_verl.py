"""From verl's DataProto, or anything with `batch` and `non_tensor_batch`, to trajectories.

Neither verl nor torch is imported; tensors may be torch, numpy or lists.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import BadTrajectory
from queue_client.images import MEDIA_FIELDS, refuse_images, without_images
from queue_client.padding import POSITION_FILLS, TENSORS, Padding, Row, build
from queue_client.plain import NotPlain, plain
from queue_client.token_ids import as_array, checked
from queue_client.trajectory import Output, Trajectory
from queue_client.verl_layout import Placed, place, two_dimensional

logger = logging.getLogger(__name__)

Grouping = Literal["auto", "apart", "together"]
Images = Literal["refuse", "drop"]
#: Fields that say nothing a reward needs: they follow from the tensors, or steer the sampling.
_LEFT_OUT = frozenset({"prompt_len", "response_len", "raw_prompt_ids", "metrics", "extra_fields"})
_OWN = frozenset(
    {"data_source", "reward_model", "extra_info", "uid", "session_id", "raw_prompt"}
    | {"__num_turns__", "tool_extra_fields"}
)


@dataclass(frozen=True, slots=True)
class Read:
    """What a DataProto holds: trajectories, its padding, and tensors that do not follow."""

    trajectories: list[Trajectory]
    padding: Padding
    given: dict[str, NDArray[Any]]


def trajectories_of(
    data: Any, *, rows: Grouping = "auto", images: Images = "refuse"
) -> list[Trajectory]:
    """Return the trajectories alone, for scoring: neither padding nor positions are read.

    Raises as `read_verl` does.
    """
    arrays = _tensors(data, without=("position_ids",))
    fields = _fields(data, len(arrays["responses"]))
    outputs = _outputs(arrays, place(arrays, fields))
    groups = _groups(fields, len(outputs), rows)
    return [_trajectory(outputs, group, fields, images) for group in groups]


def read_verl(
    data: Any, *, rows: Grouping = "auto", images: Images = "refuse", tensors: Sequence[str] = ()
) -> Read:
    """Return the trajectories of a DataProto; `TrajectoryBatch.from_verl` tells the options.

    Raises BadTrajectory that names the tensor or field and the row.
    """
    arrays = _tensors(data)
    fields = _fields(data, len(arrays["responses"]))
    placed = place(arrays, fields)
    outputs = _outputs(arrays, placed)
    padding, given = _remainder(arrays, [_row(output) for output in outputs], placed.padding)
    given |= {name: as_array(data.batch[name], name) for name in tensors}
    groups = _groups(fields, len(outputs), rows)
    trajectories = [_trajectory(outputs, group, fields, images) for group in groups]
    return Read(trajectories, padding, given)


def _tensors(data: Any, *, without: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    batch = getattr(data, "batch", None)
    if batch is None:
        raise BadTrajectory(f"{type(data).__name__} has no batch of tensors")
    names = set(batch.keys()) - set(without)
    if "responses" not in names:
        raise BadTrajectory("responses is missing in the batch of tensors")
    arrays = {
        name: two_dimensional(batch, name)
        for name in TENSORS
        if name in names and name != "position_ids"
    }
    if "position_ids" in names:
        arrays["position_ids"] = as_array(batch["position_ids"], "position_ids")
    count = len(arrays["responses"])
    for name, array in arrays.items():
        if len(array) != count:
            raise BadTrajectory(f"{name} has {len(array)} rows, responses has {count}")
    return arrays


def _fields(data: Any, count: int) -> dict[str, Any]:
    fields = dict(getattr(data, "non_tensor_batch", None) or {})
    for name, column in fields.items():
        if len(column) != count:
            raise BadTrajectory(f"{name} has {len(column)} values for {count} rows")
    return fields


def _outputs(arrays: Mapping[str, NDArray[Any]], placed: Placed) -> list[Output]:
    lens = zip(placed.prompt_lens.tolist(), placed.response_lens.tolist(), strict=True)
    return [
        checked(_output(arrays, placed.padding, row, prompt_len, response_len), f"row {row}")
        for row, (prompt_len, response_len) in enumerate(lens)
    ]


def _output(
    arrays: Mapping[str, NDArray[Any]],
    padding: Padding,
    row: int,
    prompt_len: int,
    response_len: int,
) -> Output:
    begin, end = padding.prompt_start(prompt_len), padding.response_start(prompt_len)
    output = Output(response_ids=arrays["responses"][row, :response_len])
    if "prompts" in arrays:
        output.prompt_ids = arrays["prompts"][row, begin : begin + prompt_len]
    if "response_mask" in arrays:
        mask = arrays["response_mask"][row]
        if mask[response_len:].any():
            raise BadTrajectory(f"response_mask of row {row} is set behind its {response_len} ids")
        if not (mask[:response_len] == 1).all():
            output.response_mask = mask[:response_len]
    positions = arrays.get("position_ids")
    if positions is not None and positions.shape[-1] == padding.width and "prompts" in arrays:
        line = positions[row]
        output.position_ids = np.concatenate(
            (line[..., begin : begin + prompt_len], line[..., end : end + response_len]), axis=-1
        )
    return output


def _row(output: Output) -> Row:
    none: Any = np.zeros(0, np.int32)
    prompt: Any = none if output.prompt_ids is None else output.prompt_ids
    response: Any = output.response_ids
    mask: Any = output.response_mask
    return Row(prompt, response, mask, output.position_ids)


def _remainder(
    arrays: Mapping[str, NDArray[Any]], rows: Sequence[Row], padding: Padding
) -> tuple[Padding, dict[str, NDArray[Any]]]:
    """Return the padding with what it fills gaps with, and the tensors it cannot rebuild."""
    dtypes = {name: array.dtype.name for name, array in arrays.items() if array.dtype != np.int64}
    padding = replace(
        padding,
        prompt_pad=_prompt_pad(arrays, rows, padding),
        response_pad=_pad(arrays["responses"], [len(row.response) for row in rows]),
        dtypes=dtypes,
    )
    given = {}
    for name, array in arrays.items():
        if name == "position_ids":
            for fill in POSITION_FILLS:
                padding = replace(padding, position_fill=fill)  # type: ignore[arg-type]
                if np.array_equal(build(name, rows, padding), array):
                    break
            else:
                given[name] = array
        elif not np.array_equal(build(name, rows, padding), array):
            given[name] = array
    return padding, given


def _prompt_pad(arrays: Mapping[str, NDArray[Any]], rows: Sequence[Row], padding: Padding) -> int:
    if "prompts" not in arrays:
        return 0
    prompts = arrays["prompts"]
    for line, row in zip(prompts, rows, strict=True):
        if len(row.prompt) < prompts.shape[1]:
            return int(line[0 if padding.layout == "left" else -1])
    return _pad(arrays["responses"], [len(row.response) for row in rows])


def _pad(array: NDArray[Any], lens: Sequence[int]) -> int:
    for line, size in zip(array, lens, strict=True):
        if size < array.shape[1]:
            return int(line[-1])
    return 0


def _groups(fields: Mapping[str, Any], count: int, rows: Grouping) -> list[range]:
    """Return the rows of each trajectory."""
    if rows not in ("auto", "apart", "together"):
        raise ValueError(f"rows must be auto, apart or together, got {rows!r}")
    if rows == "auto" and "uid" in fields and "session_id" in fields:
        keys = list(zip(map(str, fields["uid"]), map(str, fields["session_id"]), strict=True))
        starts = [row for row in range(count) if row == 0 or keys[row] != keys[row - 1]]
        return [range(a, b) for a, b in zip(starts, [*starts[1:], count], strict=True)]
    if rows == "together" or (rows == "auto" and "prompt_len" in fields):
        return [range(count)] if count else []
    return [range(row, row + 1) for row in range(count)]


def _trajectory(
    outputs: Sequence[Output], group: range, fields: Mapping[str, Any], images: Images
) -> Trajectory:
    """Return one trajectory with the fields of its last row, as verl's managers read them."""
    row = group[-1]
    values = {name: column[row] for name, column in fields.items()}
    return trajectory_from([outputs[place] for place in group], values, images=images, row=row)


def trajectory_from(
    outputs: list[Output], values: Mapping[str, Any], *, images: Images = "refuse", row: int = 0
) -> Trajectory:
    """Return a trajectory of these outputs with the fields of a verl row, by verl's names.

    `images="drop"` also leaves out what of `extra_info` cannot travel. Raises BadTrajectory that
    names the field; `row` is for its message.
    """
    values = dict(values)
    values["raw_prompt"] = _text_prompt(values, row, images)
    if images == "drop" and isinstance(values.get("extra_info"), Mapping):
        values["extra_info"] = _sendable(values["extra_info"], row)
    own = {
        name: _plain(values[name], name, row)
        for name in _OWN
        if name != "tool_extra_fields" and values.get(name) is not None
    }
    reward_model = _map(own, "reward_model", row)
    tool_fields = _sendable(values.get("tool_extra_fields") or {}, row)
    trajectory = Trajectory(
        outputs,
        data_source=own.get("data_source"),
        ground_truth=reward_model.pop("ground_truth", None),
        extra_info=_map(own, "extra_info", row),
        uid=own.get("uid"),
        session_id=own.get("session_id"),
        messages=own.get("raw_prompt"),
        num_turns=own.get("__num_turns__"),
    )
    for name in ("tool_rewards", "turn_scores"):
        if isinstance(tool_fields.get(name), list):
            setattr(trajectory, name, tool_fields.pop(name))
    others = values.keys() - _OWN - _LEFT_OUT - set(MEDIA_FIELDS)
    extra = _sendable({name: values[name] for name in sorted(others)}, row)
    if reward_model:
        extra["reward_model"] = reward_model
    if tool_fields:
        extra["tool_extra_fields"] = tool_fields
    trajectory.extra_fields = extra
    return trajectory


def _text_prompt(values: Mapping[str, Any], row: int, images: Images) -> Any:
    """Return the row's messages without images; raises BadTrajectory where they are refused."""
    messages = values.get("raw_prompt")
    if images == "drop":
        return None if messages is None else without_images(messages)
    media = [name for name in MEDIA_FIELDS if name in values and _filled(values[name])]
    if media:
        raise BadTrajectory(
            f"row {row}: {media[0]} holds images, which are not supported: "
            "images='drop' scores the text alone"
        )
    if messages is not None:
        refuse_images(messages, f"row {row}")
    return messages


def _sendable(values: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return every other field that is plain; one that is not is no business of a reward."""
    extra = {}
    for name, value in values.items():
        try:
            extra[name] = plain(value, name)
        except NotPlain as error:
            logger.debug("field left out row=%d field=%s reason=%s", row, name, error)
    return extra


def _plain(value: Any, name: str, row: int) -> Any:
    try:
        return plain(value, name)
    except NotPlain as error:
        raise BadTrajectory(f"row {row}: {error}") from None


def _map(own: Mapping[str, Any], name: str, row: int) -> dict[str, Any]:
    value = own.get(name, {})
    if not isinstance(value, dict):
        raise BadTrajectory(f"row {row}: {name} is {type(value).__name__}, expected a map")
    return value


def _filled(value: Any) -> bool:
    return value is not None and (not hasattr(value, "__len__") or len(value) > 0)
