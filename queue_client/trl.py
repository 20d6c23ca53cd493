"""TRL: a reward function for `GRPOTrainer(reward_funcs=[...])` whose rewards come from the pool."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, get_args

from queue_client.errors import RewardUnavailable
from queue_client.outcome import Outcome
from queue_client.plain import NotPlain, plain
from queue_client.protocol import DEFAULT_QUEUE
from queue_client.shared import shared_client
from queue_client.trajectory import Output, Trajectory

logger = logging.getLogger(__name__)

OnFailure = Literal["none", "raise"]
RewardFunction = Callable[..., Coroutine[Any, Any, list[float | None]]]
#: Columns that datasets use for the truth, in the order in which they are looked for.
TRUTHS = ("ground_truth", "solution", "answer", "label")


def queue_reward(
    redis_url: str,
    *,
    queue: str = DEFAULT_QUEUE,
    name: str = "rewardpool",
    data_source: str | None = None,
    ground_truth: str | None = None,
    timeout_s: float | None = 3600.0,
    on_failure: OnFailure = "none",
) -> RewardFunction:
    """Return an async reward function; `name` is its `__name__`, which TRL's metrics carry.

    `ground_truth` names the column with the truth (else the first of TRUTHS there is),
    `data_source` is the source of rows without such a column. A failed row is None, which TRL
    leaves out of the sum (and counts as 0 where no other function rewards the row), or
    `on_failure="raise"` raises RewardUnavailable. A row that the pool's function skipped is None.
    It can be pickled; each process connects by itself. Raises ValueError for a bad option.
    """
    if on_failure not in get_args(OnFailure):
        choices = " | ".join(get_args(OnFailure))
        raise ValueError(f"on_failure: {choices} expected (got {on_failure!r})")
    shared_client(redis_url, queue=queue)  # checks both; connects at the first row
    # a partial is picklable, and TRL sees the async function through it
    reward: Any = functools.partial(
        _rewards, redis_url, queue, data_source, ground_truth, timeout_s, on_failure
    )
    reward.__name__ = name
    return reward  # type: ignore[no-any-return]


async def _rewards(
    redis_url: str,
    queue: str,
    data_source: str | None,
    truth: str | None,
    timeout_s: float | None,
    on_failure: OnFailure,
    /,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Any] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Return a reward for each completion, in order; None where there is none."""
    rows = _columns(columns, len(completions))
    truths = _truths(rows, truth)
    trajectories = []
    for place, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        values = {column: given[place] for column, given in rows.items()}
        ids = None if completion_ids is None else completion_ids[place]
        trajectories.append(
            Trajectory(
                outputs=_outputs(completion, ids),
                data_source=values.pop("data_source", None) or data_source,
                ground_truth=None if truths is None else _plain(truths[place], "ground_truth"),
                extra_info=_extra_info(values),
                uid=str(place),
                messages=_messages(prompt),
            )
        )
    client = shared_client(redis_url, queue=queue)
    outcomes = await client.score_async(trajectories, timeout_s=timeout_s)
    _report(outcomes, columns.get("log_metric"), on_failure)
    return [outcome.reward for outcome in outcomes]


def _columns(columns: Mapping[str, Any], count: int) -> dict[str, Sequence[Any]]:
    """Return what has a value for each row; TRL also passes its state and ways to log."""
    return {
        name: column
        for name, column in columns.items()
        if isinstance(column, list | tuple) and len(column) == count
    }


def _truths(rows: Mapping[str, Sequence[Any]], wanted: str | None) -> Sequence[Any] | None:
    if wanted is not None and wanted not in rows:
        raise ValueError(f"ground_truth: there is no column {wanted!r}, only {sorted(rows)}")
    found = wanted or next((name for name in TRUTHS if name in rows), None)
    return None if found is None else rows[found]


def _outputs(completion: Any, ids: Any) -> list[Output]:
    """A text is one output with its ids; of messages each one of the assistant's is an output."""
    if isinstance(completion, str):
        return [Output(response_ids=ids, text=completion)]
    texts = [
        _text(message.get("content"))
        for message in completion
        if message.get("role", "assistant") == "assistant"
    ]
    if len(completion) == 1 and len(texts) == 1:
        return [Output(response_ids=ids, text=texts[0])]
    return [Output(text=text) for text in texts]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def _messages(prompt: Any) -> list[dict[str, Any]] | None:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    messages: list[dict[str, Any]] = [
        {"role": str(one.get("role", "user")), "content": _text(one.get("content"))}
        for one in prompt
    ]
    return messages


def _extra_info(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other columns that can travel; images cannot."""
    kept = {}
    for name, value in values.items():
        try:
            kept[name] = plain(value, name)
        except NotPlain as error:
            logger.debug("column left out column=%s reason=%s", name, error)
    return kept


def _plain(value: Any, name: str) -> Any:
    try:
        return plain(value, name)
    except NotPlain as error:
        raise ValueError(str(error)) from None


def _report(outcomes: Sequence[Outcome], log_metric: Any, on_failure: OnFailure) -> None:
    failed = [place for place, outcome in enumerate(outcomes) if not outcome.ok]
    if callable(log_metric) and outcomes:
        log_metric("rewardpool/failed_frac", len(failed) / len(outcomes))
    if not failed:
        return
    kinds = [str(outcomes[place].kind) for place in failed]
    if on_failure == "raise":
        raise RewardUnavailable(failed, kinds)
    logger.warning(
        "rows without a reward returned as None rows=%d of=%d kinds=%s first=%s",
        len(failed), len(outcomes), dict(Counter(kinds)), outcomes[failed[0]].message,
    )  # fmt: skip
