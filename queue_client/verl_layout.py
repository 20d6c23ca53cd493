"""Which of verl's three paddings a batch has, and where each row's tokens stand in it.

Lengths come from `prompt_len` and `response_len` where the producer gives them, else from the mask
of a batch whose mask covers prompt and response columns one after the other. Nothing is guessed:
tensors that contradict each other, or that allow no sure reading, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import BadTrajectory
from queue_client.padding import LAYOUTS, Layout, Padding
from queue_client.token_ids import as_array, as_integers

Lens = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch's layout and the exact lengths of its rows, int64 [B]."""

    padding: Padding
    prompt_lens: Lens
    response_lens: Lens


def place(tensors: Mapping[str, NDArray[Any]], fields: Mapping[str, Any]) -> Placed:
    """Return layout and lengths of a batch; raises BadTrajectory that says what contradicts."""
    responses = tensors["responses"]
    rows, response_width = responses.shape
    mask = _binary_mask(tensors)
    prompt_width = _prompt_width(tensors, mask, response_width)
    width = prompt_width + response_width if mask is None else mask.shape[1]
    known = _given_lens(fields, rows, prompt_width, response_width)
    if known is None:
        layout, prompt_lens, response_lens = _from_mask(mask, prompt_width, response_width)
    else:
        prompt_lens, response_lens = known
        layout = _matching(mask, prompt_width, response_width, prompt_lens, response_lens)
    padding = Padding(layout, prompt_width, response_width, width)
    placed = Placed(padding, prompt_lens, response_lens)
    _check_input_ids(tensors, placed)
    return placed


def two_dimensional(batch: Any, name: str) -> NDArray[Any]:
    """Return tensor `name` of a batch as [B, n]; raises BadTrajectory for another shape."""
    array = as_array(batch[name], name)
    if array.ndim != 2:
        raise BadTrajectory(f"{name} has shape {list(array.shape)}, expected [rows, columns]")
    return array


def _binary_mask(tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_] | None:
    if "attention_mask" not in tensors:
        return None
    mask = tensors["attention_mask"]
    if mask.dtype == np.bool_:
        return mask
    if not ((mask == 0) | (mask == 1)).all():
        raise BadTrajectory("attention_mask holds values other than 0 and 1")
    return mask.astype(np.bool_)


def _prompt_width(
    tensors: Mapping[str, NDArray[Any]], mask: NDArray[Any] | None, response_width: int
) -> int:
    if "prompts" in tensors:
        return int(tensors["prompts"].shape[1])
    if mask is not None and mask.shape[1] >= response_width:
        return int(mask.shape[1]) - response_width
    raise BadTrajectory("prompts is missing, and attention_mask does not say how wide they are")


def _given_lens(
    fields: Mapping[str, Any], rows: int, prompt_width: int, response_width: int
) -> tuple[Lens, Lens] | None:
    names = ("prompt_len", "response_len")
    if not any(name in fields for name in names):
        return None
    lens = []
    for name, width in zip(names, (prompt_width, response_width), strict=True):
        if name not in fields:
            raise BadTrajectory(f"{name} is missing beside its sibling")
        values = as_integers(list(fields[name]), name).astype(np.int64)
        if values.shape != (rows,):
            raise BadTrajectory(f"{name} has {len(values)} values for {rows} rows")
        bad = np.flatnonzero((values < 0) | (values > width))
        if len(bad):
            row = int(bad[0])
            raise BadTrajectory(f"{name}[{row}] is {values[row]}, the tensor has {width} columns")
        lens.append(values)
    return lens[0], lens[1]


def _from_mask(
    mask: NDArray[np.bool_] | None, prompt_width: int, response_width: int
) -> tuple[Layout, Lens, Lens]:
    if mask is None:
        raise BadTrajectory("attention_mask, or prompt_len and response_len, are missing")
    if mask.shape[1] != prompt_width + response_width:
        raise BadTrajectory(
            f"attention_mask has {mask.shape[1]} columns, prompts and responses have "
            f"{prompt_width} and {response_width}: give prompt_len and response_len"
        )
    prompt_lens = mask[:, :prompt_width].sum(1, dtype=np.int64)
    response_lens = mask[:, prompt_width:].sum(1, dtype=np.int64)
    widths = (prompt_width, response_width)
    layout = _matching(mask, *widths, prompt_lens, response_lens, layouts=("left", "right"))
    return layout, prompt_lens, response_lens


def _matching(
    mask: NDArray[np.bool_] | None,
    prompt_width: int,
    response_width: int,
    prompt_lens: Lens,
    response_lens: Lens,
    *,
    layouts: tuple[str, ...] = LAYOUTS,
) -> Layout:
    """Return the first layout whose mask is this one; where two agree they read alike."""
    if mask is None:
        if (prompt_lens == prompt_width).all():
            return "left"
        raise BadTrajectory("attention_mask is missing: nothing says where prompts are padded")
    worst = 0
    columns = prompt_width + response_width
    for layout in layouts:
        if layout != "joined" and mask.shape[1] != columns:
            continue
        differs = _mask_of(layout, mask.shape[1], prompt_width, prompt_lens, response_lens) != mask
        rows = np.flatnonzero(differs.any(1))
        if not len(rows):
            return layout  # type: ignore[return-value]
        worst = max(worst, int(rows[0]))
    raise BadTrajectory(
        f"attention_mask of row {worst} fits no padding of {prompt_lens[worst]} prompt and "
        f"{response_lens[worst]} response tokens"
    )


def _mask_of(
    layout: str, width: int, prompt_width: int, prompt_lens: Lens, response_lens: Lens
) -> NDArray[np.bool_]:
    columns = np.arange(width)[None, :]
    prompts, responses = prompt_lens[:, None], response_lens[:, None]
    if layout == "joined":
        # Wider claims than there are columns cannot be the streaming layout.
        fits = prompts + responses <= width
        return (columns < prompts + responses) & fits
    prompt = columns >= prompt_width - prompts if layout == "left" else columns < prompts
    inside = columns < prompt_width
    return (prompt & inside) | ((columns < prompt_width + responses) & ~inside)


def _check_input_ids(tensors: Mapping[str, NDArray[Any]], placed: Placed) -> None:
    """A streaming batch without lengths can pass for another by its mask, but not by its ids."""
    if "input_ids" not in tensors or "prompts" not in tensors:
        return
    ids, padding = tensors["input_ids"], placed.padding
    if ids.shape[1] != padding.width:
        raise BadTrajectory(f"input_ids has {ids.shape[1]} columns, its mask {padding.width}")
    lens = zip(placed.prompt_lens.tolist(), placed.response_lens.tolist(), strict=True)
    for row, (prompt_len, response_len) in enumerate(lens):
        begin, end = padding.prompt_start(prompt_len), padding.response_start(prompt_len)
        prompt = tensors["prompts"][row, begin : begin + prompt_len]
        response = tensors["responses"][row, :response_len]
        if not (
            np.array_equal(ids[row, begin : begin + prompt_len], prompt)
            and np.array_equal(ids[row, end : end + response_len], response)
        ):
            raise BadTrajectory(
                f"input_ids of row {row} is not its prompt and response: if rows are joined "
                "without a gap, give prompt_len and response_len"
            )
