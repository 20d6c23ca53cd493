"""Trajectory and Output: the record of one rollout, as the producer hands it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

TokenIds = Sequence[int] | NDArray[Any]  # or a torch tensor [n]


@dataclass(slots=True)
class Output:
    """One model generation: ids, or text, or both.

    `prompt_ids` [p] and `response_ids` [r] are token ids, `response_mask` [r] is 1 where the policy
    sampled the token and 0 for tool output. `text` is the decoded response with tool text; where
    there are no response ids, `response_mask` is over its characters.
    `position_ids` [p + r] or [k, p + r] only where they do not simply count from 0 (M-RoPE).
    In a `TrajectoryBatch` ids are int32 (int64 beyond 2^31), masks uint8, positions int64.
    """

    prompt_ids: TokenIds | None = None
    response_ids: TokenIds | None = None
    response_mask: TokenIds | None = None
    text: str | None = None
    position_ids: Any = None

    @property
    def policy_ids(self) -> TokenIds | None:
        """The response ids that the policy sampled, without tool text; None without ids."""
        if self.response_ids is None or self.response_mask is None:
            return self.response_ids
        pairs = zip(self.response_ids, self.response_mask, strict=True)
        return [int(token) for token, sampled in pairs if sampled]

    def policy_text(self, decode: Callable[[list[int]], str] | None = None) -> str | None:
        """Return what the policy itself wrote, without tool text; None where nothing says so.

        Reward functions get `text`, the whole response. `decode` turns ids into text and is needed
        where tool text stands between the policy's own.
        """
        if self.text is not None and (self.response_mask is None or all(self.response_mask)):
            return self.text
        if self.response_ids is None:
            if self.text is None or self.response_mask is None:
                return None
            pairs = zip(self.text, self.response_mask, strict=True)
            return "".join(letter for letter, sampled in pairs if sampled)
        ids = self.policy_ids
        if ids is None or decode is None:
            return None
        return decode([int(token) for token in ids])


@dataclass(slots=True)
class Trajectory:
    """One rollout: its outputs in order, and one set of fields.

    `messages` is the chat prompt; `extra_info` is passed to the reward function as a copy.
    `extra_fields` is whatever else a verl row holds, under verl's names (`tool_extra_fields`,
    `reward_scores`, `reward_model` without its ground truth, ...).
    The label `{uid}_{session_id}_{index}` is for people and is never the identity.
    """

    outputs: list[Output] = field(default_factory=list)
    data_source: str | None = None
    ground_truth: Any = None
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    uid: str | None = None
    session_id: int | str | None = None
    messages: list[dict[str, Any]] | None = None
    num_turns: int | None = None
    tool_rewards: list[float] | None = None
    turn_scores: list[float] | None = None
    extra_fields: Mapping[str, Any] = field(default_factory=dict)

    def label(self, index: int) -> str:
        """Name output `index` for logs and dashboards; two trajectories may share a label."""
        return f"{self.uid}_{self.session_id}_{index}"
