"""Rows, a tokenizer, and the reset that existing tests do."""

from __future__ import annotations

from typing import Any

from verl_batches import objects, padded, rows_of, text_of

from queue_client.compat import RateLimitedRewardManager


class Letters:
    """A tokenizer of one letter a token."""

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return text_of(list(ids))


def row(*, truth: str = "x", **extra_info: Any) -> Any:
    """One row in the batch layout."""
    data = padded(rows_of([(2, 3)]), "left")
    data.non_tensor_batch = {
        "data_source": objects(["mine"]),
        "reward_model": objects([{"ground_truth": truth}]),
        "extra_info": objects([extra_info]),
    }
    return data


def reset() -> None:
    """As existing tests do."""
    RateLimitedRewardManager._class_initialized = False
    RateLimitedRewardManager._semaphore = None
    RateLimitedRewardManager._rpm_limiter = None
    RateLimitedRewardManager._tpm_limiter = None
