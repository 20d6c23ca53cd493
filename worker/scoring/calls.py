"""Calling a reward function with what it asks for: verl's signature, and its relatives.

| family | told by | gets |
| --- | --- | --- |
| verl | `solution_str` | one row by keywords, `extra_info` as a copy of its own |
| verl, batched | `solution_strs` | lists of one |
| TRL | `completions` | lists of one; columns come from `extra_info` |
| OpenRLHF | `queries` | lists of one, the query being prompt and response |
| AReaL, verifiers | `completion` | one row; columns come from `extra_info` |

Any of them may also name `outputs` (every output of the trajectory), `limits`, `messages`,
`uid`, `session_id` and `num_turns`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from worker.rewards.errors import BadInput
from worker.scoring.functions import is_async
from worker.scoring.rows import Row
from worker.settings import SettingsError

_ONE: dict[str, Callable[[Row], Any]] = {
    "data_source": lambda row: row.trajectory.data_source,
    "solution_str": lambda row: row.text,
    "ground_truth": lambda row: row.trajectory.ground_truth,
    "extra_info": lambda row: row.extra_info(),
    "outputs": lambda row: row.outputs(),
    "messages": lambda row: row.messages(),
    "raw_prompt": lambda row: row.messages(),
    "uid": lambda row: row.trajectory.uid,
    "session_id": lambda row: row.trajectory.session_id,
    "num_turns": lambda row: row.trajectory.num_turns,
    "prompt": lambda row: row.prompt(),
    "completion": lambda row: row.text,
    "prompt_ids": lambda row: row.ids("prompt_ids"),
    "completion_ids": lambda row: row.ids("response_ids"),
    "answer": lambda row: row.trajectory.ground_truth,
    "info": lambda row: row.extra_info(),
    "state": lambda row: {},
}
_MANY: dict[str, Callable[[Row], Any]] = {
    "data_sources": lambda row: [row.trajectory.data_source],
    "solution_strs": lambda row: [row.text],
    "ground_truths": lambda row: [row.trajectory.ground_truth],
    "extra_infos": lambda row: [row.extra_info()],
    "completions": lambda row: [row.completion()],
    "prompts": lambda row: [row.prompt()],
    "completion_ids": lambda row: [row.ids("response_ids")],
    "prompt_ids": lambda row: [row.ids("prompt_ids")],
    "queries": lambda row: [row.prompt_text() + row.text],
    "labels": lambda row: [row.trajectory.ground_truth],
}
_TEXTS = ("solution_str", "solution_strs", "completions", "queries", "completion", "outputs")
_VERL = ("data_source", "solution_str", "ground_truth", "extra_info")
_LISTS = {"solution_strs", "completions", "queries"}
_COLUMNS = {"completions", "completion", "queries"}


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How one function is called: worked out once from its signature."""

    wanted: tuple[tuple[str, Callable[[Row], Any]], ...]
    constants: Mapping[str, Any]
    columns: tuple[str, ...] = ()  # required ones, from extra_info
    all_columns: bool = False
    in_lists: bool = False
    takes_outputs: bool = False
    takes_limits: bool = False
    is_async: bool = False

    def arguments(self, row: Row) -> dict[str, Any]:
        """The keywords of one call, `limits` aside. Raises BadInput for a missing column."""
        given = {name: value(row) for name, value in self.wanted}
        if self.columns or self.all_columns:
            given = {**self._columns(row, given), **given}
        given.update(self.constants)
        return given

    def _columns(self, row: Row, given: Mapping[str, Any]) -> dict[str, Any]:
        info = row.extra_info()
        if missing := [name for name in self.columns if name not in info]:
            raise BadInput(f"extra_info: the reward function needs {missing[0]!r}, a column of it")
        names = [*self.columns, *(info if self.all_columns else ())]
        found = {name: info[name] for name in names if name not in given}
        return {name: [item] for name, item in found.items()} if self.in_lists else found

    def result(self, value: Any) -> Any:
        """One row's result, taken out of a list of one where the family returns lists."""
        if not self.in_lists:
            return value
        if isinstance(value, Mapping) and "rewards" in value:  # OpenRLHF
            rewards = _single(value["rewards"])
            logged = {k: _single(v) for k, v in dict(value.get("extra_logs") or {}).items()}
            return {**logged, "score": rewards}
        return _single(value)


def _single(value: Any) -> Any:
    if isinstance(value, list | tuple) or (hasattr(value, "shape") and len(value.shape) == 1):
        if len(value) != 1:
            from worker.scoring.results import BadScore

            raise BadScore(f"the reward function returned {len(value)} rewards for 1 row")
        return value[0]
    return value


def plan(function: Callable[..., Any], kwargs: Mapping[str, Any], *, spec: str) -> CallPlan:
    """Read the signature. Raises SettingsError for a function that cannot be called."""
    parameters = _parameters(function, spec)
    has_rest = not parameters or any(each.kind is each.VAR_KEYWORD for each in parameters)
    names = [each.name for each in parameters if each.kind in _BY_KEYWORD]
    if has_rest and ("solution_str" in names or not set(names) & set(_TEXTS)):
        names = [*dict.fromkeys([*names, *_VERL])]  # verl passes all four, whichever it names
    _check_names(names, spec)
    in_lists = bool(_LISTS & set(names))
    offered = _MANY if in_lists else _ONE
    wanted = {n: offered[n] for n in names if n in offered and n not in kwargs}
    settled = {*wanted, *kwargs, *_given_by_partial(function), "limits"}
    columns = [each.name for each in parameters if _is_open(each) and each.name not in settled]
    from_columns = bool(_COLUMNS & set(names))
    if columns and not from_columns:
        raise SettingsError(
            f"reward.function: {spec!r} needs {columns[0]!r}, which no row has and reward.kwargs "
            f"does not give"
        )
    if not has_rest:
        _check_kwargs(names, kwargs, spec)
    return CallPlan(
        wanted=tuple(wanted.items()),
        constants=dict(kwargs),
        columns=tuple(columns),
        all_columns=from_columns and has_rest,
        in_lists=in_lists,
        takes_outputs="outputs" in names,
        takes_limits="limits" in names,
        is_async=is_async(function),
    )


_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _parameters(function: Callable[..., Any], spec: str) -> list[inspect.Parameter]:
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []  # written in C: verl's keywords, and it decides
    for each in found:
        if each.kind is each.POSITIONAL_ONLY and each.default is each.empty:
            raise SettingsError(f"reward.function: {spec!r}: {each.name!r} is positional only")
    return found


def _is_open(parameter: inspect.Parameter) -> bool:
    """Whether a call must give it."""
    return parameter.kind in _BY_KEYWORD and parameter.default is parameter.empty


def _check_kwargs(names: list[str], kwargs: Mapping[str, Any], spec: str) -> None:
    for name in kwargs:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise SettingsError(f"reward.kwargs.{name}: {spec!r} takes no such argument{hint}")


def _check_names(names: list[str], spec: str) -> None:
    if not set(names) & set(_TEXTS):
        raise SettingsError(
            f"reward.function: {spec!r} takes ({', '.join(names)}), none of {', '.join(_TEXTS)}"
        )


def _given_by_partial(function: Any) -> set[str]:
    """Names that a partial has given already."""
    return set(function.keywords) if isinstance(function, functools.partial) else set()
