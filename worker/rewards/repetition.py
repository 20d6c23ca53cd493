"""A penalty for repeating oneself: the share of n-grams that have stood before.

Words are what white space separates, in lower case; for scripts without spaces count characters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from worker.rewards.inputs import response_text


def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: dict[str, Any] | None = None,
    *,
    ngram: int = 3,
    max_penalty: float = 1.0,
    unit: Literal["words", "characters"] = "words",
) -> dict[str, float]:
    """Return `score` from 0 (all n-grams differ) down to almost `-max_penalty`, and `repeated`.

    A response shorter than one n-gram earns 0.

    >>> compute_score(None, "no no no no", ngram=1)
    {'score': -0.75, 'repeated': 0.75}
    """
    if ngram < 1:
        raise ValueError(f"ngram: must be at least 1, got {ngram!r}")
    if unit not in ("words", "characters"):
        raise ValueError(f"unit: must be words or characters, got {unit!r}")
    text = response_text(solution_str).lower()
    repeated = repeated_share(numbered(text.split() if unit == "words" else text), ngram)
    return {"score": -repeated * max_penalty or 0.0, "repeated": repeated}


def numbered(pieces: Sequence[str]) -> NDArray[np.int64]:
    """Return a number for each piece [n], the same for the same piece."""
    numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))
    return np.fromiter((numbers[piece] for piece in pieces), dtype=np.int64, count=len(pieces))


def repeated_share(numbers: NDArray[np.int64], ngram: int) -> float:
    """Return the share of n-grams that are not the first of their kind, 0 <= share < 1."""
    total = len(numbers) - ngram + 1
    if total < 1:
        return 0.0
    # Numbering n-grams one length at a time needs two numbers a place, whatever n is.
    grams = numbers
    for length in range(1, ngram):
        pairs = grams[:-1] * (int(numbers.max()) + 1) + numbers[length:]
        grams = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    return 1.0 - len(np.unique(grams)) / total
