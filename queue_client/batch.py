"""TrajectoryBatch: trajectories padded to one rectangle, a row for each output."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import BadTrajectory
from queue_client.from_verl import Grouping, Images, read_verl
from queue_client.images import refuse_images
from queue_client.padding import TENSORS, Padding, Row, build
from queue_client.token_ids import checked
from queue_client.trajectory import Output, Trajectory

logger = logging.getLogger(__name__)
_NO_IDS = np.zeros(0, np.int32)


class TrajectoryBatch:
    """Trajectories whose outputs are the rows of padded tensors; lengths are explicit.

    Made by `pad`, `from_verl` or `queue_client.wire.decode_batch`; not changed afterwards.
    Tensors are built when they are first asked for. An output without ids is a row of length 0.
    """

    __slots__ = ("_padding", "_rows", "_tensors", "given", "trajectories")

    def __init__(
        self,
        trajectories: list[Trajectory],
        *,
        padding: Padding | None = None,
        given: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take outputs whose ids are arrays already; `given` tensors do not follow from them."""
        self.trajectories = trajectories
        self.given: dict[str, NDArray[Any]] = dict(given or {})
        self._padding = padding
        self._rows: list[Row] | None = None
        self._tensors: dict[str, NDArray[Any]] = {}

    @classmethod
    def pad(cls, trajectories: Iterable[Trajectory]) -> TrajectoryBatch:
        """Return the batch of these trajectories, prompts padded left and responses right.

        A trajectory without outputs keeps its place, has no row and is logged.
        Raises BadTrajectory that names row, field and value.
        """
        padded = []
        for place, trajectory in enumerate(trajectories):
            if not trajectory.outputs:
                logger.warning(
                    "trajectory without outputs received row=%d uid=%s session_id=%s",
                    place,
                    trajectory.uid,
                    trajectory.session_id,
                )
            if trajectory.messages:
                refuse_images(trajectory.messages, f"row {place}")
            padded.append(_with_arrays(trajectory, place))
        batch = cls(padded)
        _check_axes(batch.outputs)
        return batch

    @classmethod
    def from_verl(
        cls,
        data: Any,
        *,
        rows: Grouping = "auto",
        images: Images = "refuse",
        tensors: Sequence[str] = (),
    ) -> TrajectoryBatch:
        """Return the batch in a DataProto, or anything with `batch` and `non_tensor_batch`.

        All three of verl's paddings are read, torch, numpy and lists alike; lengths come from
        `prompt_len` and `response_len`, or from a mask that leaves no doubt. `rows` says which rows
        are outputs of one trajectory: `auto` takes neighbours of the same uid and session, all
        rows where verl's streaming path gives lengths, else each row for itself.
        `images="drop"` scores the text of multi-modal rows. `tensors` names others to carry along.
        Raises BadTrajectory that names the tensor or field and the row.
        """
        read = read_verl(data, rows=rows, images=images, tensors=tensors)
        return cls(read.trajectories, padding=read.padding, given=read.given)

    def __len__(self) -> int:
        """Return the number of rows: outputs of all trajectories."""
        return sum(len(trajectory.outputs) for trajectory in self.trajectories)

    @property
    def outputs(self) -> list[Output]:
        """The outputs in row order."""
        return [output for trajectory in self.trajectories for output in trajectory.outputs]

    @property
    def trajectory_of_row(self) -> list[int]:
        """The place of each row's trajectory [B]."""
        return [
            place for place, one in enumerate(self.trajectories) for _ in range(len(one.outputs))
        ]

    @property
    def rows(self) -> list[Row]:
        """Each row's ids, mask and positions, unpadded."""
        if self._rows is None:
            self._rows = [_row(output) for output in self.outputs]
        return self._rows

    @property
    def prompt_lens(self) -> NDArray[np.int64]:
        """The prompt tokens of each row, int64 [B]."""
        return np.array([len(row.prompt) for row in self.rows], np.int64)

    @property
    def response_lens(self) -> NDArray[np.int64]:
        """The response tokens of each row, int64 [B], tool tokens included."""
        return np.array([len(row.response) for row in self.rows], np.int64)

    @property
    def padding(self) -> Padding:
        """How the rows lie in the tensors."""
        if self._padding is None:
            self._padding = Padding().fitted(
                [len(row.prompt) for row in self.rows], [len(row.response) for row in self.rows]
            )
        return self._padding

    @property
    def fixed_padding(self) -> Padding | None:
        """The padding a producer's tensors had; None where the narrowest one is meant."""
        return self._padding

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a padded tensor by verl's name; raises KeyError for one that is not there."""
        if name in self.given:
            return self.given[name]
        if name not in TENSORS:
            raise KeyError(name)
        if name not in self._tensors:
            self._tensors[name] = build(name, self.rows, self.padding)
        return self._tensors[name]

    @property
    def prompts(self) -> NDArray[Any]:
        """Prompt ids [B, P]."""
        return self.tensor("prompts")

    @property
    def responses(self) -> NDArray[Any]:
        """Response ids [B, R]."""
        return self.tensor("responses")

    @property
    def input_ids(self) -> NDArray[Any]:
        """Prompt and response ids [B, L]."""
        return self.tensor("input_ids")

    @property
    def attention_mask(self) -> NDArray[Any]:
        """1 where `input_ids` holds a token [B, L]."""
        return self.tensor("attention_mask")

    @property
    def position_ids(self) -> NDArray[Any]:
        """Positions [B, L], or [B, k, L] for multi-modal ones."""
        return self.tensor("position_ids")

    @property
    def response_mask(self) -> NDArray[Any]:
        """1 where the policy sampled the token, 0 for tool output and padding [B, R]."""
        return self.tensor("response_mask")


def _with_arrays(trajectory: Trajectory, place: int) -> Trajectory:
    outputs = trajectory.outputs
    for output in outputs:
        if output.prompt_ids is not None or output.response_ids is not None:
            break
        if output.response_mask is not None or output.position_ids is not None:
            break
    else:
        return trajectory
    name = f"row {place}: outputs"
    return _replaced(
        trajectory, [checked(output, f"{name}[{index}]") for index, output in enumerate(outputs)]
    )


def _replaced(trajectory: Trajectory, outputs: list[Output]) -> Trajectory:
    return Trajectory(
        outputs,
        trajectory.data_source,
        trajectory.ground_truth,
        trajectory.extra_info,
        trajectory.uid,
        trajectory.session_id,
        trajectory.messages,
        trajectory.num_turns,
        trajectory.tool_rewards,
        trajectory.turn_scores,
        trajectory.extra_fields,
    )


def _check_axes(outputs: Sequence[Output]) -> None:
    axes = {len(one.position_ids) for one in outputs if _has_axes(one.position_ids)}
    if len(axes) > 1:
        raise BadTrajectory(f"position_ids have {min(axes)} and {max(axes)} axes in one batch")


def _has_axes(positions: Any) -> bool:
    return positions is not None and positions.ndim == 2


def _row(output: Output) -> Row:
    prompt: Any = _NO_IDS if output.prompt_ids is None else output.prompt_ids
    response: Any = _NO_IDS if output.response_ids is None else output.response_ids
    mask: Any = None if output.response_ids is None else output.response_mask
    return Row(prompt, response, mask, output.position_ids)
