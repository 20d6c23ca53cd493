"""QueueRewardManager: verl's reward manager whose rewards come from the pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from queue_client.errors import BadTrajectory
from queue_client.from_verl import trajectories_of
from queue_client.outcome import Kind, Outcome
from queue_client.trajectory import Trajectory
from queue_client.verl.options import VerlOptions, options_from, section
from queue_client.verl.outputs import score_outputs
from queue_client.verl.results import result_of

logger = logging.getLogger(__name__)


class QueueRewardManager:
    """Sends each trajectory to the pool and awaits its outcome; any number at once.

    Made by verl with these keywords. Options come from `reward.reward_kwargs` (see VerlOptions),
    the address of Redis also from the environment. Tokenizer and reward function are the workers'
    own; those given here are not used. Safe in several event loops, threads and after a fork: one
    client serves the whole process. Raises ValueError with the key and the value.
    """

    def __init__(
        self,
        config: Any = None,
        tokenizer: Any = None,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
        **_: Any,
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.compute_score = compute_score
        self.reward_router_address = reward_router_address
        self.reward_model_tokenizer = reward_model_tokenizer
        self.options = _options_of(config)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Score one trajectory, whose outputs are the rows of `data`.

        Returns `reward_score` and `reward_extra_info` with the same keys for every row. Raises
        NoReward if the row failed and `on_failure` is `raise`; PoolUnavailable if Redis is away.
        """
        options = self.options
        try:
            trajectory = _trajectory_of(data, options)
        except BadTrajectory as error:
            outcome = Outcome.failed(Kind.BAD_INPUT, str(error), attempts=0)
            return self._result(outcome, "row")
        found = await options.client().score_async([trajectory], timeout_s=options.timeout_s)
        return self._result(found[0], f"{trajectory.uid}_{trajectory.session_id}")

    async def run_batch(self, data: Any) -> list[dict[str, Any]]:
        """Score every row of `data` as a trajectory of its own; one result each, in order.

        The same as `run_single` on each row, for less: the rows are read and sent together.
        """
        options = self.options
        try:
            trajectories = trajectories_of(data, rows="apart", images=options.images)
        except BadTrajectory:  # some row: the others are scored
            rows = range(len(data))
            calls = (self.run_single(data[row : row + 1]) for row in rows)
            return list(await asyncio.gather(*calls))
        found = await options.client().score_async(trajectories, timeout_s=options.timeout_s)
        pairs = zip(found, trajectories, strict=True)
        return [self._result(outcome, f"{one.uid}_{one.session_id}") for outcome, one in pairs]

    async def score_outputs(self, outputs: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Score the outputs of one agent loop in place; see `score_outputs`."""
        await score_outputs(outputs, kwargs, options=self.options)

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: Sequence[float]) -> Any:
        """Return rewards on each row's last response token, torch float32 [B, R].

        A row without a response token has no place for its reward and stays 0.
        """
        import torch

        responses = data.batch["responses"]
        if len(scores) != len(responses):
            raise ValueError(f"scores: {len(responses)} expected, one a row (got {len(scores)})")
        lens = _response_lens(data).to(responses.device)
        placed = torch.zeros_like(responses, dtype=torch.float32)
        values = torch.tensor([float(score) for score in scores], dtype=torch.float32)
        rows = torch.nonzero(lens > 0).flatten()
        placed[rows, lens[rows] - 1] = values.to(responses.device)[rows]
        if len(rows) < len(responses):
            logger.warning("rewards without a token dropped rows=%d", len(responses) - len(rows))
        return placed

    def _result(self, outcome: Outcome, label: str) -> dict[str, Any]:
        options = self.options
        return result_of(
            outcome, on_failure=options.on_failure, extra_keys=options.extra_keys, label=label
        )


def _options_of(config: Any) -> VerlOptions:
    """Read the options; refuses settings under which verl would not ask this manager."""
    if section(config, "reward", "reward_model", "enable") and not section(
        config, "reward", "custom_reward_function", "path"
    ):
        raise ValueError(
            "reward.reward_model.enable: false expected (got true): verl would ask its own reward "
            "model and never the pool; name the model in the workers' settings instead"
        )
    if section(config, "reward", "custom_reward_function", "path"):
        logger.warning(
            "custom reward function not used path=%s: workers score by their own [reward] function",
            section(config, "reward", "custom_reward_function", "path"),
        )
    for root in ("reward", "reward_model"):  # verl < 0.7.1 has it under reward_model
        given = section(config, root, "reward_kwargs")
        if given is not None:
            return options_from(given, where=f"{root}.reward_kwargs")
    return options_from({}, where="reward.reward_kwargs")


def _trajectory_of(data: Any, options: VerlOptions) -> Trajectory:
    trajectories = trajectories_of(data, rows="together", images=options.images)
    if not trajectories:
        raise BadTrajectory("data has no row")
    return trajectories[0]


def _response_lens(data: Any) -> Any:
    import torch

    fields = getattr(data, "non_tensor_batch", None) or {}
    if "response_len" in fields:
        return torch.as_tensor([int(one) for one in fields["response_len"]])
    mask, width = data.batch["attention_mask"], data.batch["responses"].shape[1]
    names = set(data.batch.keys())  # a TensorDict refuses `in`
    wanted = data.batch["prompts"].shape[1] + width if "prompts" in names else mask.shape[1]
    if mask.shape[1] != wanted:
        raise BadTrajectory(
            f"attention_mask has {mask.shape[1]} columns, prompts and responses have {wanted}: "
            "give response_len"
        )
    return mask[:, mask.shape[1] - width :].sum(dim=1)
