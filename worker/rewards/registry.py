"""The built-in reward functions: their names, where each runs, and the data sources they serve.

A function is named `builtin:NAME` in the settings, or found by a row's `data_source`, with the
strings that verl uses. Nothing is imported before it is needed.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from worker.rewards.errors import BadInput

PREFIX = "builtin:"

#: thread: bounded work, no signals. process: may hang or eat memory, so it must be killable.
BuiltinExecutor = Literal["thread", "process", "async"]


@dataclass(frozen=True, slots=True)
class Builtin:
    """One built-in function: `target` is `module:attribute`, `sources` are shell patterns."""

    name: str
    target: str
    executor: BuiltinExecutor
    sources: tuple[str, ...] = ()
    #: Seconds one row may run where the settings say nothing; None: the general default.
    timeout_s: float | None = None

    def load(self) -> Callable[..., Any]:
        """Import the module and return the function."""
        module, _, attribute = self.target.partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return function

    def check(self, kwargs: Mapping[str, Any]) -> None:
        """Refuse keyword arguments with which no row could be scored.

        Asks `check_arguments` of the module, if there is one. Raises ValueError or TypeError.
        """
        self._ask_module("check_arguments", **kwargs)

    def prepare(self) -> None:
        """Import what the function needs late, so that no row's time is spent on it.

        Asks `prepare` of the module, if there is one, in the process that runs the function.
        """
        self._ask_module("prepare")

    def _ask_module(self, name: str, **arguments: Any) -> None:
        module = importlib.import_module(self.target.partition(":")[0])
        asked = getattr(module, name, None)
        if asked is not None:
            asked(**arguments)


#: Two expressions may take for ever to compare; nearly all take milliseconds.
MATHS_TIMEOUT_S = 10.0

BUILTINS = (
    Builtin("gsm8k", "worker.rewards.gsm8k:compute_score", "thread", ("openai/gsm8k",)),
    Builtin("gsm8k_flexible", "worker.rewards.gsm8k:compute_flexible_score", "thread"),
    Builtin(
        "math",
        "worker.rewards.math_string:compute_score",
        "thread",
        ("lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"),
    ),
    Builtin(
        "math_verify",
        "worker.rewards.math_verifier:compute_score",
        "process",
        timeout_s=MATHS_TIMEOUT_S,
    ),
    Builtin(
        "math_dapo",
        "worker.rewards.math_dapo:compute_score",
        "thread",
        ("math_dapo", "math", "math_dapo_reasoning", "aime*"),
    ),
    Builtin(
        "prime_math",
        "worker.rewards.math_verifier:compute_score",
        "process",
        (
            "numina_aops_forum",
            "numina_synthetic_math",
            "numina_amc_aime",
            "numina_synthetic_amc",
            "numina_cn_k12",
            "numina_olympiads",
        ),
        timeout_s=MATHS_TIMEOUT_S,
    ),
    Builtin(
        "geo3k",
        "worker.rewards.geo3k:compute_score",
        "process",
        ("hiyouga/geometry3k",),
        timeout_s=MATHS_TIMEOUT_S,
    ),
    Builtin(
        "code",
        "worker.sandbox.code_reward:compute_score",
        "async",
        ("codecontests", "apps", "codeforces", "taco"),
    ),
    Builtin(
        "search_r1",
        "worker.rewards.search_r1:compute_score",
        "thread",
        (
            "searchR1_nq",
            "searchR1_triviaqa",
            "searchR1_popqa",
            "searchR1_hotpotqa",
            "searchR1_2wikimultihopqa",
            "searchR1_musique",
            "searchR1_bamboogle",
        ),
    ),
    Builtin("search_r1_substring", "worker.rewards.search_r1:compute_substring_score", "thread"),
    Builtin("token_f1", "worker.rewards.token_f1:compute_score", "thread"),
    Builtin("multiple_choice", "worker.rewards.multiple_choice:compute_score", "thread"),
    Builtin("countdown", "worker.rewards.countdown:compute_score", "thread", ("countdown",)),
    Builtin("knights", "worker.rewards.knights:compute_score", "thread", ("kk",)),
    Builtin("think_format", "worker.rewards.formats:compute_think_score", "thread"),
    Builtin("tag_count", "worker.rewards.formats:compute_tag_score", "thread"),
    Builtin("overlong", "worker.rewards.lengths:compute_overlong_score", "thread"),
    Builtin(
        "cosine_length",
        "worker.rewards.lengths:compute_cosine_score",
        "process",
        timeout_s=MATHS_TIMEOUT_S,
    ),
    Builtin("repetition", "worker.rewards.repetition:compute_score", "thread"),
    Builtin("judge", "worker.rewards.judge:compute_score", "async"),
)

#: What scores a row that has a ground truth and no data source.
DEFAULT = "math_verify"

_BY_NAME = {each.name: each for each in BUILTINS}
_BY_SOURCE = {
    source: each for each in BUILTINS for source in each.sources if not set(source) & set("*?[")
}
_PATTERNS = [
    (source, each) for each in BUILTINS for source in each.sources if set(source) & set("*?[")
]


def builtin(name: str) -> Builtin:
    """Return a built-in by its name, with or without `builtin:`.

    >>> builtin("builtin:gsm8k").executor
    'thread'

    Raises BadInput with the nearest known name.
    """
    plain = name.removeprefix(PREFIX)
    found = _BY_NAME.get(plain)
    if found is None:
        near = difflib.get_close_matches(plain, _BY_NAME, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_BY_NAME))}"
        raise BadInput(f"function: there is no built-in {plain!r}; {hint}")
    return found


def route(data_source: str | None) -> Builtin:
    """Return the built-in that serves this data source; None: the maths verifier.

    >>> route("aime2024").name
    'math_dapo'

    Raises BadInput that lists the sources there are.
    """
    if data_source is None:
        return _BY_NAME[DEFAULT]
    found = _BY_SOURCE.get(data_source) if isinstance(data_source, str) else None
    if found is not None:
        return found
    for pattern, each in _PATTERNS:
        if isinstance(data_source, str) and fnmatchcase(data_source, pattern):
            return each
    raise BadInput(
        f"data_source: no reward function serves {shown(data_source)}; "
        f"there are {', '.join(known_sources())}"
    )


def known_sources() -> list[str]:
    """Return every data source, or pattern of one, that a built-in serves, sorted."""
    return sorted([*_BY_SOURCE, *(pattern for pattern, _ in _PATTERNS)])


def shown(value: object, limit: int = 80) -> str:
    """Return a value for an error message: its repr, cut to `limit` characters."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
