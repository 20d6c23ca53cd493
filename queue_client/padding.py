"""How a batch's rows lie in rectangular tensors: verl's three layouts, and their construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import BadTrajectory

Layout = Literal["left", "right", "joined"]
PositionFill = Literal["zero", "last", "next"]
LAYOUTS: tuple[str, ...] = get_args(Layout)
POSITION_FILLS: tuple[str, ...] = get_args(PositionFill)
#: No tensor larger than this is built: one long row among very many short ones.
MAX_ELEMENTS = 1 << 28
TENSORS = (
    "prompts",
    "responses",
    "input_ids",
    "attention_mask",
    "position_ids",
    "response_mask",
)


@dataclass(frozen=True, slots=True)
class Padding:
    """Where the tokens of a row of P prompt and R response columns stand.

    `left`: prompts end at column P, responses begin there (verl's classic batch).
    `right`: prompts begin at column 0, responses at column P (verl's V1 colocate path).
    `joined`: `prompts` and `responses` as `right`, but `input_ids`, `attention_mask` and
    `position_ids` hold prompt and response without a gap, `width` columns (verl's streaming path).
    `position_fill`: positions behind the last token are 0, repeat the last, or count on.
    `dtypes`: tensors that are not int64.
    """

    layout: Layout = "left"
    prompt_width: int = 0
    response_width: int = 0
    width: int = 0
    prompt_pad: int = 0
    response_pad: int = 0
    position_fill: PositionFill = "last"
    dtypes: dict[str, str] = field(default_factory=dict)

    def fitted(self, prompt_lens: Sequence[int], response_lens: Sequence[int]) -> Padding:
        """Return the same padding with the narrowest widths for rows of these lengths."""
        prompt_width, response_width = max(prompt_lens, default=0), max(response_lens, default=0)
        width = prompt_width + response_width
        if self.layout == "joined":
            width = max(map(int.__add__, prompt_lens, response_lens), default=0)
        return replace(self, prompt_width=prompt_width, response_width=response_width, width=width)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the dtype of a tensor of this name."""
        return np.dtype(self.dtypes.get(name, "int64"))

    def prompt_start(self, prompt_len: int) -> int:
        """Return the column where a prompt of this length begins."""
        return self.prompt_width - prompt_len if self.layout == "left" else 0

    def response_start(self, prompt_len: int) -> int:
        """Return the column of the wide tensors where the response begins."""
        return prompt_len if self.layout == "joined" else self.prompt_width


@dataclass(frozen=True, slots=True)
class Row:
    """One output's arrays: ids [p] and [r], mask [r] or None (all ones), positions or None."""

    prompt: NDArray[Any]
    response: NDArray[Any]
    mask: NDArray[Any] | None = None
    positions: NDArray[Any] | None = None


def build(name: str, rows: Sequence[Row], padding: Padding) -> NDArray[Any]:
    """Return one padded tensor [B, P], [B, R], [B, width] or (positions) [B, k, width].

    Raises BadTrajectory where it would have more than MAX_ELEMENTS elements.
    """
    axes = max((_axes(row.positions) for row in rows), default=0) if name == "position_ids" else 1
    elements = len(rows) * padding.width * max(axes, 1)
    if elements > MAX_ELEMENTS:
        raise BadTrajectory(f"{name} would have {elements} elements, at most {MAX_ELEMENTS}")
    return _BUILDERS[name](rows, padding)


def _prompts(rows: Sequence[Row], padding: Padding) -> NDArray[Any]:
    out = _full(len(rows), padding.prompt_width, padding.prompt_pad, padding.dtype("prompts"))
    for line, row in zip(out, rows, strict=True):
        start = padding.prompt_start(len(row.prompt))
        line[start : start + len(row.prompt)] = row.prompt
    return out


def _responses(rows: Sequence[Row], padding: Padding) -> NDArray[Any]:
    out = _full(len(rows), padding.response_width, padding.response_pad, padding.dtype("responses"))
    for line, row in zip(out, rows, strict=True):
        line[: len(row.response)] = row.response
    return out


def _response_mask(rows: Sequence[Row], padding: Padding) -> NDArray[Any]:
    out = np.zeros((len(rows), padding.response_width), padding.dtype("response_mask"))
    for line, row in zip(out, rows, strict=True):
        line[: len(row.response)] = 1 if row.mask is None else row.mask
    return out


def _input_ids(rows: Sequence[Row], padding: Padding) -> NDArray[Any]:
    out = _full(len(rows), padding.width, padding.prompt_pad, padding.dtype("input_ids"))
    if padding.layout != "joined" and padding.response_pad != padding.prompt_pad:
        out[:, padding.prompt_width :] = padding.response_pad
    for line, row in zip(out, rows, strict=True):
        start = padding.prompt_start(len(row.prompt))
        line[start : start + len(row.prompt)] = row.prompt
        start = padding.response_start(len(row.prompt))
        line[start : start + len(row.response)] = row.response
    return out


def _attention_mask(rows: Sequence[Row], padding: Padding) -> NDArray[Any]:
    out = np.zeros((len(rows), padding.width), padding.dtype("attention_mask"))
    for line, row in zip(out, rows, strict=True):
        start = padding.prompt_start(len(row.prompt))
        line[start : start + len(row.prompt)] = 1
        start = padding.response_start(len(row.prompt))
        line[start : start + len(row.response)] = 1
    return out


def _position_ids(rows: Sequence[Row], padding: Padding) -> NDArray[Any]:
    axes = max((_axes(row.positions) for row in rows), default=0)
    shape = (len(rows), axes, padding.width) if axes else (len(rows), padding.width)
    out = np.zeros(shape, padding.dtype("position_ids"))
    counting = np.arange(padding.width + 1)
    for line, row in zip(out, rows, strict=True):
        _fill_positions(line, row, padding, counting)
    return out


def _axes(positions: NDArray[Any] | None) -> int:
    return positions.shape[0] if positions is not None and positions.ndim == 2 else 0


def _fill_positions(line: NDArray[Any], row: Row, padding: Padding, counting: NDArray[Any]) -> None:
    prompt_len, response_len = len(row.prompt), len(row.response)
    total = prompt_len + response_len
    values = counting[:total] if row.positions is None else row.positions
    start = padding.prompt_start(prompt_len)
    line[..., start : start + prompt_len] = values[..., :prompt_len]
    start = padding.response_start(prompt_len)
    line[..., start : start + response_len] = values[..., prompt_len:]
    if padding.position_fill == "zero" or not total:
        return
    for gap in _gaps(padding, prompt_len, response_len):
        last = line[..., gap.start - 1 : gap.start] if gap.start else 0
        line[..., gap] = last
        if padding.position_fill == "next" and gap.start == start + response_len:
            line[..., gap] += counting[1 : gap.stop - gap.start + 1]


def _gaps(padding: Padding, prompt_len: int, response_len: int) -> list[slice]:
    """Return the padded columns behind a token: between prompt and response, and at the end."""
    end = padding.response_start(prompt_len) + response_len
    gaps = [slice(end, padding.width)]
    if padding.layout == "right" and prompt_len < padding.prompt_width:
        gaps.insert(0, slice(prompt_len, padding.prompt_width))
    return gaps


def _full(rows: int, width: int, value: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    if value == 0:
        return np.zeros((rows, width), dtype)
    return np.full((rows, width), value, dtype)


_BUILDERS = {
    "prompts": _prompts,
    "responses": _responses,
    "input_ids": _input_ids,
    "attention_mask": _attention_mask,
    "position_ids": _position_ids,
    "response_mask": _response_mask,
}
