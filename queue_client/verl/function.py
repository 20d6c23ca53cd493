"""verl's custom reward function, by path: one text a call, scored by the pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queue_client.from_verl import trajectory_from
from queue_client.trajectory import Output
from queue_client.verl.options import options_from
from queue_client.verl.results import result_of

#: What verl adds to the call for reward models of its own: workers have theirs.
_VERLS_OWN = frozenset({"reward_router_address", "reward_model_tokenizer"})


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return `score` and the columns of `queue_client.verl.results.KEYS`.

    Named in `reward.custom_reward_function` with `path: pkg://queue_client.verl`; `settings` are
    VerlOptions, from its `reward_kwargs`. Only the text of the last output is scored:
    QueueRewardManager sends all of them. Raises as its `run_single` does.
    """
    options = options_from(
        {name: value for name, value in settings.items() if name not in _VERLS_OWN},
        where="reward.custom_reward_function.reward_kwargs",
    )
    info = dict(extra_info or {})
    values = {
        "data_source": data_source,
        "reward_model": {"ground_truth": ground_truth},
        "extra_info": info,
        "__num_turns__": info.get("num_turns"),
    }
    trajectory = trajectory_from([Output(text=solution_str)], values, images=options.images)
    found = await options.client().score_async([trajectory], timeout_s=options.timeout_s)
    result = result_of(
        found[0], on_failure=options.on_failure, extra_keys=options.extra_keys, label=data_source
    )
    return {**result["reward_extra_info"], "score": result["reward_score"]}
