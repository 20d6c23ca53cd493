"""Scoring inside an agent loop: a list of AgentLoopOutput-like objects, rewarded in place."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from queue_client.from_verl import trajectory_from
from queue_client.outcome import Outcome
from queue_client.trajectory import Output
from queue_client.verl.options import VerlOptions
from queue_client.verl.results import extra_info, result_of

logger = logging.getLogger(__name__)

INFO = "reward_extra_info"
#: What an output's `extra_fields` hold that is no business of a reward function.
_NOT_SENT = frozenset({INFO, "teacher_ids", "teacher_logprobs", "raw_prompt"})


async def score_outputs(
    outputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    options: VerlOptions | None = None,
    **settings: Any,
) -> None:
    """Score one trajectory and set `reward_score` and `extra_fields["reward_extra_info"]` on all.

    `outputs` have `prompt_ids`, `response_ids`, `response_mask`, `reward_score`, `extra_fields`;
    `kwargs` are the fields of the row as verl's agent loop gets them. The reward of the last
    output is the trajectory's: one that is set already is kept and nothing is sent. `settings` are
    those of VerlOptions. Teacher log-probabilities are neither read nor written.
    Raises as `QueueRewardManager.run_single` does.
    """
    if not outputs:
        logger.warning(
            "trajectory without outputs received uid=%s session_id=%s",
            kwargs.get("uid"), kwargs.get("session_id"),
        )  # fmt: skip
        return
    options = options or VerlOptions(**settings)
    last = outputs[-1]
    if last.reward_score is None:
        await _score(outputs, kwargs, options)
    elif INFO not in last.extra_fields:  # verl's trainer copies it without asking
        given = Outcome.scored(float(last.reward_score), attempts=0)
        last.extra_fields[INFO] = extra_info(given, float(last.reward_score), options.extra_keys)
    for output in outputs[:-1]:
        output.reward_score = last.reward_score
        output.extra_fields[INFO] = dict(last.extra_fields[INFO])


async def _score(outputs: Sequence[Any], kwargs: Mapping[str, Any], options: VerlOptions) -> None:
    began = time.perf_counter()
    last = outputs[-1]
    trajectory = trajectory_from(
        [_output(one) for one in outputs], _values(last, kwargs), images=options.images
    )
    found = await options.client().score_async([trajectory], timeout_s=options.timeout_s)
    result = result_of(
        found[0],
        on_failure=options.on_failure,
        extra_keys=options.extra_keys,
        label=f"{trajectory.uid}_{trajectory.session_id}",
    )
    last.reward_score = result["reward_score"]
    last.extra_fields[INFO] = result[INFO]
    if hasattr(getattr(last, "metrics", None), "compute_score"):
        last.metrics.compute_score = time.perf_counter() - began


def _output(output: Any) -> Output:
    return Output(
        prompt_ids=output.prompt_ids,
        response_ids=output.response_ids,
        response_mask=getattr(output, "response_mask", None) or None,
    )


def _values(last: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row's fields as verl's own `_compute_score` would name them."""
    values = dict(kwargs)
    values["__num_turns__"] = getattr(last, "num_turns", None)
    values["tool_extra_fields"] = {
        name: value for name, value in last.extra_fields.items() if name not in _NOT_SENT
    }
    return values
