"""The wire: batches, outcomes, tool calls and RQ's own values as versioned msgpack, never pickle.

`docs/architecture.md` describes every field.
"""

from __future__ import annotations

from typing import Any

from queue_client.batch import TrajectoryBatch
from queue_client.errors import BadTrajectory, WireError
from queue_client.padding import LAYOUTS, POSITION_FILLS, TENSORS, Padding
from queue_client.trajectory import Output, Trajectory
from queue_client.wire_document import MAX_BYTES, pack, pack_message, unpack, unpack_message
from queue_client.wire_fields import pack_fields, unpack_fields
from queue_client.wire_masks import pack_masks, pack_positions, unpack_masks, unpack_positions
from queue_client.wire_numbers import (
    MAX_ELEMENTS,
    TENSOR_DTYPES,
    pack_tensor,
    unpack_tensor,
)
from queue_client.wire_outcome import (
    decode_outcome,
    decode_outcomes,
    encode_outcome,
    encode_outcomes,
)
from queue_client.wire_rows import MAX_ROW_TOKENS, pack_rows, unpack_rows
from queue_client.wire_tool import decode_tool_call, encode_tool_call

MAX_TRAJECTORIES = 1 << 16
MAX_ROWS = 1 << 18
_KEYS = frozenset(
    {
        "trajectories",
        "counts",
        "fields",
        "texts",
        "rows",
        "masks",
        "positions",
        "padding",
        "tensors",
    }
)


def encode_batch(batch: TrajectoryBatch) -> bytes:
    """Return the batch as bytes; raises BadTrajectory that names the field that cannot travel."""
    trajectories = batch.trajectories
    outputs = batch.outputs
    if len(trajectories) > MAX_TRAJECTORIES or len(outputs) > MAX_ROWS:
        raise BadTrajectory(
            f"batch has {len(trajectories)} trajectories and {len(outputs)} outputs, "
            f"at most {MAX_TRAJECTORIES} and {MAX_ROWS} travel together"
        )
    body: dict[str, Any] = {"trajectories": len(trajectories)}
    counts = [len(one.outputs) for one in trajectories]
    if counts.count(1) != len(counts):
        body["counts"] = counts
    texts = [one.text for one in outputs]
    if texts.count(None) != len(texts):
        body["texts"] = texts
    body["fields"] = pack_fields(trajectories)
    for name, packer in (
        ("rows", pack_rows),
        ("masks", pack_masks),
        ("positions", pack_positions),
    ):
        packed = packer(outputs)
        if packed:
            body[name] = packed
    if batch.fixed_padding is not None:
        body["padding"] = _pack_padding(batch.fixed_padding)
    if batch.given:
        body["tensors"] = {name: pack_tensor(array) for name, array in batch.given.items()}
    return pack_message("batch", body)


def decode_batch(data: bytes, *, max_bytes: int = MAX_BYTES) -> TrajectoryBatch:
    """Return the batch; raises WireError that names what is wrong, in bounded time and memory.

    Payloads longer than `max_bytes` are not looked at.
    """
    parts = unpack_message(data, "batch", max_bytes=max_bytes)
    body = parts[0] if len(parts) == 1 else None
    if type(body) is not dict:
        raise WireError("batch message has no map as its body")
    unknown = body.keys() - _KEYS
    if unknown:
        raise WireError(f"batch has the unknown part {min(unknown)[:40]!r}")
    total = body.get("trajectories")
    if type(total) is not int or not 0 <= total <= MAX_TRAJECTORIES:
        raise WireError(f"trajectories is no number from 0 to {MAX_TRAJECTORIES}")
    counts = _counts(body, total)
    outputs = _outputs(body, total if counts is None else sum(counts))
    trajectories = unpack_fields(body.get("fields"), total)
    _share_out(trajectories, outputs, counts)
    return TrajectoryBatch(
        trajectories,
        padding=_unpack_padding(body["padding"], outputs) if "padding" in body else None,
        given=_unpack_tensors(body.get("tensors", {}), len(outputs)),
    )


class Serializer:
    """RQ's serializer: job functions, arguments and results as msgpack."""

    @staticmethod
    def dumps(obj: Any) -> bytes:
        """Return plain values as bytes; raises TypeError for what is not plain."""
        return pack(obj)

    @staticmethod
    def loads(data: bytes) -> Any:
        """Return the values; raises WireError for anything but msgpack."""
        return unpack(data)


def _counts(body: dict[str, Any], total: int) -> list[int] | None:
    if "counts" not in body:
        return None
    counts = body["counts"]
    if (
        type(counts) is not list
        or len(counts) != total
        or any(type(count) is not int or not 0 <= count <= MAX_ROWS for count in counts)
        or sum(counts) > MAX_ROWS
    ):
        raise WireError(f"counts is no list of {total} numbers of outputs up to {MAX_ROWS}")
    return counts


def _outputs(body: dict[str, Any], count: int) -> list[Output]:
    if "rows" in body:
        if type(body["rows"]) is not dict:
            raise WireError("rows is no map")
        outputs = unpack_rows(body["rows"], count)
    else:
        outputs = [Output() for _ in range(count)]
    if "texts" in body:
        _attach_texts(body["texts"], outputs)
    if "masks" in body:
        masked = [_masked_len(output) for output in outputs]
        for output, mask in zip(outputs, unpack_masks(body["masks"], masked), strict=True):
            output.response_mask = mask
    if "positions" in body:
        totals = [_len(output.prompt_ids) + _len(output.response_ids) for output in outputs]
        for output, row in zip(outputs, unpack_positions(body["positions"], totals), strict=True):
            output.position_ids = row
    return outputs


def _attach_texts(texts: Any, outputs: list[Output]) -> None:
    if type(texts) is not list or len(texts) != len(outputs):
        raise WireError(f"texts is no list of {len(outputs)} texts")
    for output, text in zip(outputs, texts, strict=True):
        if text is not None and type(text) is not str:
            raise WireError(f"texts holds a {type(text).__name__}")
        output.text = text


def _masked_len(output: Output) -> int:
    return len(output.text or "") if output.response_ids is None else len(output.response_ids)


def _len(ids: Any) -> int:
    return 0 if ids is None else len(ids)


def _share_out(
    trajectories: list[Trajectory], outputs: list[Output], counts: list[int] | None
) -> None:
    if counts is None:
        for trajectory, output in zip(trajectories, outputs, strict=True):
            trajectory.outputs = [output]
        return
    begin = 0
    for trajectory, count in zip(trajectories, counts, strict=True):
        trajectory.outputs = outputs[begin : begin + count]
        begin += count


def _pack_padding(padding: Padding) -> list[Any]:
    return [
        padding.layout,
        padding.prompt_width,
        padding.response_width,
        padding.width,
        padding.prompt_pad,
        padding.response_pad,
        padding.position_fill,
        dict(padding.dtypes),
    ]


def _unpack_padding(packed: Any, outputs: list[Output]) -> Padding:
    if type(packed) is not list or len(packed) != 8:
        raise WireError("padding is no list of 8 values")
    layout, *numbers, fill, dtypes = packed
    if layout not in LAYOUTS or fill not in POSITION_FILLS:
        raise WireError("padding has an unknown layout or position fill")
    if any(type(number) is not int or abs(number) > 1 << 62 for number in numbers):
        raise WireError("padding holds something other than whole numbers")
    if type(dtypes) is not dict or any(
        name not in TENSORS or type(dtype) is not str or dtype not in TENSOR_DTYPES
        for name, dtype in dtypes.items()
    ):
        raise WireError("padding names an unknown tensor or dtype")
    prompt_width, response_width, width, prompt_pad, response_pad = numbers
    padding = Padding(
        layout, prompt_width, response_width, width, prompt_pad, response_pad, fill, dtypes
    )
    _check_widths(padding, outputs)
    return padding


def _check_widths(padding: Padding, outputs: list[Output]) -> None:
    least = padding.fitted(
        [_len(one.prompt_ids) for one in outputs], [_len(one.response_ids) for one in outputs]
    )
    for name in ("prompt_width", "response_width", "width"):
        width = getattr(padding, name)
        if not getattr(least, name) <= width <= 2 * MAX_ROW_TOKENS:
            raise WireError(f"padding.{name} is {width}, the rows need {getattr(least, name)}")
    if padding.layout != "joined" and (
        padding.width != padding.prompt_width + padding.response_width
    ):
        raise WireError("padding.width is not the sum of the other two")
    if padding.width * len(outputs) > MAX_ELEMENTS:
        raise WireError(f"padding claims {padding.width * len(outputs)} elements a tensor")


def _unpack_tensors(packed: Any, rows: int) -> dict[str, Any]:
    if type(packed) is not dict:
        raise WireError("tensors is no map")
    tensors = {
        name: unpack_tensor(value, f"tensors[{name[:40]!r}]") for name, value in packed.items()
    }
    for name, array in tensors.items():
        if array.shape[0] != rows:
            raise WireError(f"tensors[{name[:40]!r}] has {array.shape[0]} rows, expected {rows}")
    return tensors


__all__ = [
    "Serializer",
    "decode_batch",
    "decode_outcome",
    "decode_outcomes",
    "decode_tool_call",
    "encode_batch",
    "encode_outcome",
    "encode_outcomes",
    "encode_tool_call",
]
