"""verl's three paddings, written down plainly, and the text a reward function must see in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

PAD = {"left": 7, "right": 7, "joined": 0}
LAYOUTS = tuple(PAD)


@dataclass
class PlainRow:
    """One output in plain Python: token ids and the mask of sampled tokens."""

    prompt: list[int]
    response: list[int]
    mask: list[int] | None = None

    @property
    def sampled(self) -> list[int]:
        return self.mask if self.mask is not None else [1] * len(self.response)


@dataclass
class DataLike:
    """What is read of a DataProto."""

    batch: dict[str, Any]
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)


def text_of(ids: list[int]) -> str:
    """A tokenizer of one letter a token; id 0, a pad of the streaming layout, is "!"."""
    return "".join("!" if one == 0 else chr(96 + one % 26 + 1) for one in ids)


def rows_of(lengths: list[tuple[int, int]]) -> list[PlainRow]:
    """Rows of these lengths whose tokens all differ and are never a pad."""
    rows, first = [], 100
    for prompt_len, response_len in lengths:
        total = prompt_len + response_len
        ids = list(range(first, first + total))
        rows.append(PlainRow(ids[:prompt_len], ids[prompt_len:]))
        first += total
    return rows


def padded(rows: list[PlainRow], layout: str, *, extra_columns: int = 0) -> DataLike:
    """The tensors verl would build of these rows, int64, with lengths only where verl has them."""
    pad = PAD[layout]
    wide_prompt = max((len(row.prompt) for row in rows), default=0) + extra_columns
    wide_response = max((len(row.response) for row in rows), default=0) + extra_columns
    joined = max((len(row.prompt) + len(row.response) for row in rows), default=0)
    lines: dict[str, list[list[int]]] = {
        name: [] for name in ("prompts", "responses", "input_ids", "attention_mask", "position_ids")
    }
    masks = []
    for row in rows:
        prompt_gap = [pad] * (wide_prompt - len(row.prompt))
        response_gap = [pad] * (wide_response - len(row.response))
        prompt = prompt_gap + row.prompt if layout == "left" else row.prompt + prompt_gap
        response = row.response + response_gap
        if layout == "joined":
            both = row.prompt + row.response
            gap = joined - len(both)
            ids, mask = both + [pad] * gap, [1] * len(both) + [0] * gap
            positions = list(range(len(both))) + [0] * gap
        else:
            ids = prompt + response
            ones, zeros = [1] * len(row.prompt), [0] * len(prompt_gap)
            mask = zeros + ones if layout == "left" else ones + zeros
            mask = mask + [1] * len(row.response) + [0] * len(response_gap)
            positions, seen = [], 0
            for one in mask:
                seen += one
                positions.append(max(seen - 1, 0))
        masks.append(row.sampled + [0] * len(response_gap))
        for name, line in zip(lines, (prompt, response, ids, mask, positions), strict=True):
            lines[name].append(line)
    widths = {"prompts": wide_prompt, "responses": wide_response}
    width = joined if layout == "joined" else wide_prompt + wide_response
    batch = {
        name: np.array(values, np.int64).reshape(len(rows), widths.get(name, width))
        for name, values in lines.items()
    }
    fields: dict[str, Any] = {}
    if layout == "joined":
        fields["prompt_len"] = np.array([len(row.prompt) for row in rows], np.int64)
        fields["response_len"] = np.array([len(row.response) for row in rows], np.int64)
    else:
        batch["response_mask"] = np.array(masks, np.int64).reshape(len(rows), wide_response)
    if layout == "right":
        del batch["input_ids"], batch["position_ids"]
    return DataLike(batch, fields)


def objects(values: list[Any]) -> Any:
    """A one-dimensional object array, as DataProto.from_dict makes them."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def bare(**attributes: Any) -> SimpleNamespace:
    """Something with just these attributes."""
    return SimpleNamespace(**attributes)
