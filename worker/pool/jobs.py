"""The functions a job may name. They run inside a `PoolWorker`, which knows them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from queue_client import protocol


class WrongWorker(RuntimeError):
    """A stock RQ worker took a job of this pool; start workers with `rewardpool worker QUEUE`."""


def score_batch(reference: dict[str, Any]) -> NoReturn:
    """Score one batch. `reference` is `queue_client.protocol.Reference.args()`'s one map."""
    raise WrongWorker("score_batch runs in a worker.PoolWorker only: `rewardpool worker QUEUE`")


def call_tool(reference: dict[str, Any]) -> NoReturn:
    """Call one tool, as `queue_client.protocol.encode_tool_call` describes it."""
    raise WrongWorker("call_tool runs in a worker.PoolWorker only: `rewardpool worker QUEUE`")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    protocol.SCORE_FUNCTION: score_batch,
    protocol.TOOL_FUNCTION: call_tool,
}


def resolve(name: str) -> Callable[..., Any]:
    """Return the registered function of that name. Raises KeyError."""
    return _FUNCTIONS[name]
