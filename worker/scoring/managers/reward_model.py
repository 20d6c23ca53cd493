"""The reward-model manager: a discriminative model judges prompt and response.

The model is in this process (`reward.reward_model.path`), or served over HTTP (`url`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, Self

from worker.rewards.errors import RewardFailure, ScoreTimeout
from worker.scoring.failures import failure_of
from worker.scoring.managers.model_http import ServedModel
from worker.scoring.managers.model_local import LocalModel
from worker.scoring.managers.model_text import Templater
from worker.scoring.managers.rate_limited import RateLimitedManager
from worker.scoring.results import Verdict
from worker.scoring.rows import Row
from worker.scoring.runners import Attempt
from worker.settings import RewardFields, SettingsError

if TYPE_CHECKING:
    from worker.scoring.workshop import Workshop


class Model(Protocol):
    """Turns one templated text into a reward and extra fields."""

    async def judge(self, text: str) -> tuple[float, dict[str, Any]]:
        """Return the last label's raw output. Raises RewardFailure."""
        ...


class RewardModelManager:
    """Templates each row and lets the model judge it."""

    takes_outputs = False
    uses_limit = False

    def __init__(self, model: Model, templater: Templater) -> None:
        self._model, self._templater = model, templater

    @classmethod
    def build(cls, fields: RewardFields, workshop: Workshop) -> Self | RateLimitedManager:
        """From the settings; with `limit` each row takes a lease on it."""
        if fields.function or fields.functions:
            raise SettingsError("reward.function: the reward_model manager calls none; remove it")
        if workshop.reward_model is None:  # one for all sources
            workshop.reward_model = _built(workshop)
        manager = cls(*workshop.reward_model)
        if fields.limit is None and (fields.max_concurrent, fields.rpm, fields.tpm) == (None,) * 3:
            return manager
        return RateLimitedManager.around(manager, fields, workshop)

    async def score(self, row: Row, attempt: Attempt) -> Verdict:
        """Return the model's raw output for the row."""
        clock = attempt.clock
        clock.start()
        try:
            async with asyncio.timeout(clock.left_s()):
                reward, extra = await self._model.judge(self._templater.text(row))
        except TimeoutError:
            raise ScoreTimeout(f"no reward within {clock.run_limit_s:.3g} s") from None
        except RewardFailure:
            raise
        except Exception as error:
            raise failure_of(error) from error
        finally:
            clock.stop()
        return Verdict(reward, {"acc": reward, **extra})


def _built(workshop: Workshop) -> tuple[Model, Templater]:
    settings = workshop.settings.reward.reward_model
    if settings.url is not None:
        return ServedModel(settings, workshop.on_close), Templater(_tokenizer_for_url(workshop))
    if settings.path is not None:
        local = LocalModel.load(settings, workshop.on_close)
        return local, Templater(local.tokenizer)
    raise SettingsError("reward.reward_model: set path (a model here) or url (served)")


def _tokenizer_for_url(workshop: Workshop) -> Any:
    """The chat template's owner: the model's own tokenizer if it is here, else the policy's."""
    from pathlib import Path

    from worker.scoring.decoding import load_tokenizer

    path = workshop.settings.reward.reward_model.path
    if path is not None and Path(path).is_dir():
        return load_tokenizer(path)
    return workshop.decoder.tokenizer
