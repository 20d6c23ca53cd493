"""One row on its way through scoring: a trajectory with its texts at hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from queue_client.trajectory import Output, TokenIds, Trajectory
from worker.rewards.errors import BadInput

_PLAIN = (str, int, float, bool, bytes, type(None))


class Row:
    """A trajectory, and what reward functions may ask of it.

    `texts` has one entry an output: the response as text, None where nobody asked for it.
    """

    __slots__ = ("added", "texts", "trajectory")

    def __init__(self, trajectory: Trajectory) -> None:
        if not trajectory.outputs:
            raise BadInput("outputs: the trajectory has none")
        self.trajectory = trajectory
        self.texts: list[str | None] = [output.text for output in trajectory.outputs]
        self.added: dict[str, Any] = {}  # what a manager adds to extra_info

    @property
    def text(self) -> str:
        """The last output's text: what is scored unless a function asks for all outputs."""
        found = self.texts[-1]
        assert found is not None, "decoded before any function runs"
        return found

    def undecoded(self, *, all_outputs: bool) -> list[int]:
        """Positions of outputs that still lack their text."""
        wanted = range(len(self.texts)) if all_outputs else (len(self.texts) - 1,)
        return [at for at in wanted if self.texts[at] is None]

    def extra_info(self) -> dict[str, Any]:
        """A copy the function may change, with verl's additions."""
        trajectory = self.trajectory
        info: dict[str, Any] = {k: copied(v) for k, v in trajectory.extra_info.items()}
        if trajectory.extra_fields:
            info.update(copied(trajectory.extra_fields.get("tool_extra_fields") or {}))
        if trajectory.turn_scores is not None:
            info["turn_scores"] = list(trajectory.turn_scores)
        if trajectory.tool_rewards is not None:
            info["tool_rewards"] = list(trajectory.tool_rewards)
        if trajectory.num_turns is not None:
            info["num_turns"] = trajectory.num_turns
        info.update(self.added)
        info["rollout_reward_scores"] = copied(trajectory.extra_fields.get("reward_scores") or {})
        return info

    def outputs(self) -> list[Output]:
        """Every output, text included."""
        return [
            Output(o.prompt_ids, o.response_ids, _wide(o.response_mask), text, o.position_ids)
            for o, text in zip(self.trajectory.outputs, self.texts, strict=True)
        ]

    def with_texts(self) -> Trajectory:
        """The trajectory, its texts filled in and the managers' additions with it."""
        return replace(
            self.trajectory,
            outputs=self.outputs(),
            extra_info={**self.trajectory.extra_info, **self.added},
        )

    def messages(self) -> list[dict[str, Any]]:
        """The chat prompt, a copy; empty if there was none."""
        return [dict(message) for message in self.trajectory.messages or []]

    def prompt(self) -> list[dict[str, Any]] | str:
        """The chat prompt as messages, or as text where there are none."""
        return self.messages() or self.prompt_text()

    def prompt_text(self) -> str:
        """The prompt's contents, one message a line."""
        contents = [message.get("content") for message in self.trajectory.messages or []]
        return "\n".join(content for content in contents if isinstance(content, str))

    def completion(self) -> list[dict[str, Any]] | str:
        """The response as TRL shows it: messages where the prompt is a conversation."""
        if self.trajectory.messages:
            return [{"role": "assistant", "content": self.text}]
        return self.text

    def ids(self, field: str) -> list[int]:
        """Token ids of the last output: `prompt_ids` or `response_ids`; empty if unknown."""
        return id_list(getattr(self.trajectory.outputs[-1], field))

    def tokens(self, *, all_outputs: bool = False) -> int:
        """Real length in tokens, prompt and response; without ids a quarter of the bytes."""
        chosen = range(len(self.texts)) if all_outputs else (len(self.texts) - 1,)
        return max(1, sum(self._tokens_of(at) for at in chosen))

    def _tokens_of(self, at: int) -> int:
        output = self.trajectory.outputs[at]
        response = count(output.response_ids)
        if response is None:
            response = math.ceil(len((self.texts[at] or "").encode("utf-8", "replace")) / 4)
        prompt = count(output.prompt_ids)
        if prompt is None:
            prompt = math.ceil(len(self.prompt_text().encode("utf-8", "replace")) / 4)
        return prompt + response


def _wide(mask: Any) -> Any:
    """A mask as int64: `sum()` over bytes of 0 and 1 would silently begin anew at 256."""
    return mask.astype("int64") if hasattr(mask, "astype") else mask


def count(ids: TokenIds | None) -> int | None:
    """How many ids; None if there are none to count."""
    return None if ids is None else len(ids)


def id_list(ids: Any) -> list[int]:
    """A list of plain integers from a list, a numpy array or a torch tensor."""
    if ids is None:
        return []
    if hasattr(ids, "tolist"):
        listed: list[int] = ids.tolist()
        return listed
    return [int(each) for each in ids]


def copied(value: Any) -> Any:
    """A deep copy of plain data: a function that changes it changes nobody else's."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    if isinstance(value, tuple):
        return tuple(copied(item) for item in value)
    return value.copy() if hasattr(value, "copy") else value
