"""DAPO's manager: a penalty for responses that come close to the length limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from worker.rewards.errors import BadInput
from worker.scoring.managers.combined import Scorer, scorer_of
from worker.scoring.results import Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.decoding import Decoder
    from worker.scoring.workshop import Workshop

KWARGS = frozenset({"max_resp_len", "overlong_buffer_cfg"})
_KEYS = frozenset({"enable", "len", "penalty_factor", "log"})


@dataclass(frozen=True, slots=True)
class Overlong:
    """The last `buffer` of `longest` tokens cost up to `factor`, linearly; never more."""

    longest: int
    buffer: int
    factor: float
    log: bool

    @classmethod
    def of(cls, kwargs: dict[str, Any]) -> Overlong | None:
        """Read verl's `max_resp_len` and `overlong_buffer_cfg`. Raises SettingsError."""
        where = "reward.kwargs.overlong_buffer_cfg"
        given = kwargs.get("overlong_buffer_cfg") or {}
        if not isinstance(given, dict):
            raise SettingsError(f"{where}: must be a table, got {given!r}")
        if spare := sorted(set(given) - _KEYS):
            raise SettingsError(f"{where}.{spare[0]}: unknown key, there are {sorted(_KEYS)}")
        if not _flag(given, "enable", where):
            return None
        longest = _count(kwargs.get("max_resp_len"), "reward.kwargs.max_resp_len")
        buffer = _count(given.get("len"), f"{where}.len")
        if buffer > longest:
            raise SettingsError(f"{where}.len: {buffer} is more than max_resp_len {longest}")
        factor = given.get("penalty_factor", 1.0)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 0:
            raise SettingsError(f"{where}.penalty_factor: must be a number >= 0, got {factor!r}")
        return cls(longest, buffer, float(factor), _flag(given, "log", where))

    def penalty(self, length: int) -> float:
        """What a response of `length` tokens loses: 0.0 down to -factor.

        >>> overlong = Overlong(longest=10, buffer=4, factor=1.0, log=True)
        >>> [overlong.penalty(length) for length in (6, 8, 10, 14)]
        [0.0, -0.5, -1.0, -1.0]
        """
        excess = min(max(0, length - (self.longest - self.buffer)), self.buffer)
        return -excess / self.buffer * self.factor if excess else 0.0


class DapoManager:
    """The functions' reward with the overlong penalty added; `score` stays what it was."""

    def __init__(self, scorer: Scorer, overlong: Overlong | None, decoder: Decoder) -> None:
        self._scorer, self._overlong, self._decoder = scorer, overlong, decoder
        self.takes_outputs, self.uses_limit = scorer.takes_outputs, scorer.uses_limit

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self:
        """From the settings."""
        scorer = scorer_of(fields, workshop, own_kwargs=KWARGS)
        return cls(scorer, Overlong.of(fields.kwargs), workshop.decoder)

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Score, then take the penalty off. A skipped row stays skipped."""
        length = self._length(row) if self._overlong is not None else 0
        found = await self._scorer.score(row, attempt)
        if self._overlong is None:
            return found
        penalty = self._overlong.penalty(length)
        if self._overlong.log:
            found.extra["overlong_reward"] = penalty
            found.extra["overlong"] = penalty < 0
        if found.reward is not None:
            found.reward += penalty
        return found

    def _length(self, row: Row) -> int:
        """The last response in tokens; from its text where there are no ids."""
        ids = row.trajectory.outputs[-1].response_ids
        if ids is not None:
            return len(ids)
        if self._decoder.tokenizer is None:
            raise BadInput("outputs[-1].response_ids: the overlong penalty counts tokens")
        return len(self._decoder.tokenizer.encode(row.text, add_special_tokens=False))


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise SettingsError(f"{where}: must be a whole number > 0, got {value!r}")
    return value


def _flag(given: dict[str, Any], name: str, where: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise SettingsError(f"{where}.{name}: must be true or false, got {value!r}")
    return value
