"""What a reward function of verl is called with, read from the last row of a DataProto."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from queue_client.errors import BadTrajectory
from queue_client.verl_layout import place, two_dimensional

_TENSORS = ("prompts", "responses", "input_ids", "attention_mask")


@dataclass
class RowCall:
    """The keyword arguments of one call; `extra_info` is a copy of the row's."""

    source: Any
    text: str
    truth: Any
    extra_info: dict[str, Any]
    more: dict[str, Any] = field(default_factory=dict)

    def of(self, function: Callable[..., Any]) -> Any:
        """Call a reward function."""
        return function(
            data_source=self.source,
            solution_str=self.text,
            ground_truth=self.truth,
            extra_info=self.extra_info,
            **self.more,
        )


def row_call(data: Any, tokenizer: Any) -> RowCall:
    """Read the last row. Raises KeyError for a missing field, BadTrajectory for unsure lengths."""
    fields = data.non_tensor_batch
    last = {name: fields[name][-1] for name in fields}
    extra_info = copy.deepcopy(dict(last.get("extra_info") or {}))
    tool_fields = last.get("tool_extra_fields")
    if isinstance(tool_fields, Mapping):
        extra_info.update(tool_fields)
    if last.get("__num_turns__") is not None:
        extra_info.setdefault("num_turns", last["__num_turns__"])
    ids = last_response(data)
    return RowCall(
        source=last["data_source"],
        text=tokenizer.decode(ids, skip_special_tokens=True),
        truth=last["reward_model"]["ground_truth"],
        extra_info=extra_info,
    )


def last_response(data: Any) -> list[int]:
    """Return the response ids of the last row, without padding, whichever layout it has."""
    names = set(data.batch.keys())
    if "responses" not in names:
        raise BadTrajectory("responses is missing in the batch of tensors")
    tensors = {name: two_dimensional(data.batch, name) for name in _TENSORS if name in names}
    placed = place(tensors, data.non_tensor_batch)
    length = int(placed.response_lens[-1])
    ids: list[int] = tensors["responses"][-1, :length].tolist()
    return ids
