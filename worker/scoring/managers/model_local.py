"""A reward model in this process: loaded once, warm, scoring in batches on a thread of its own.

Helpers are forked from a process that never loads it, so a model that ran is never forked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from worker.rewards.errors import BadInput
from worker.scoring.failures import ScorerError, shown
from worker.settings import ModelSettings, SettingsError

logger = logging.getLogger(__name__)

#: A tokenizer without a limit of its own says a huge number.
NO_LIMIT = 10_000_000


@dataclass(slots=True)
class _Ask:
    ids: list[int]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[list[float]]


class LocalModel:
    """A sequence-classification model; rows that wait together are judged together."""

    def __init__(self, model: Any, tokenizer: Any, settings: ModelSettings) -> None:
        self.tokenizer = tokenizer
        self._model, self._batch_size = model, settings.batch_size
        self._longest = settings.max_tokens or _longest(model, tokenizer)
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="rewardpool-encoder")
        self._asked: queue.SimpleQueue[_Ask | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, name="rewardpool-reward-model", daemon=True
        )
        self._thread.start()

    @classmethod
    def load(cls, settings: ModelSettings, on_close: list[Callable[[], Awaitable[None]]]) -> Self:
        """Load tokenizer and model. Raises SettingsError that says what is missing."""
        path = settings.path or ""
        try:
            import torch
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise SettingsError(
                f"reward.reward_model.path: {path!r} needs torch and transformers: "
                f"pip install 'rewardpool[model]' ({error})"
            ) from None
        local = Path(path).is_dir()
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=local)
            model = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=getattr(torch, settings.dtype), local_files_only=local
            )
            model = model.to(_device(settings.device, torch)).eval()
        except Exception as error:
            raise SettingsError(
                f"reward.reward_model.path: {path!r} cannot be loaded: {shown(error)}"
            ) from error
        _set_padding(model, tokenizer)
        made = cls(model, tokenizer, settings)
        on_close.append(made.close)
        logger.info(
            "reward model loaded labels=%d device=%s", model.config.num_labels, model.device
        )
        return made

    async def judge(self, text: str) -> tuple[float, dict[str, Any]]:
        """Return the last label's raw output, all of them beside it if there are several."""
        loop = asyncio.get_running_loop()
        ids = await loop.run_in_executor(self._encoder, self._encode, text)
        if len(ids) > self._longest:
            raise BadInput(
                f"response: {len(ids)} tokens with its prompt, the reward model takes "
                f"{self._longest}"
            )
        answer: asyncio.Future[list[float]] = loop.create_future()
        self._asked.put(_Ask(ids, loop, answer))
        outputs = await answer
        return outputs[-1], {"outputs": outputs} if len(outputs) > 1 else {}

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def _serve(self) -> None:
        """The model's thread: take what waits, of like length together."""
        while (first := self._asked.get()) is not None:
            waiting = [first]
            with contextlib.suppress(queue.Empty):
                while len(waiting) < self._batch_size * 8:
                    if (ask := self._asked.get_nowait()) is None:
                        return
                    waiting.append(ask)
            waiting = [ask for ask in waiting if not ask.answer.done()]
            waiting.sort(key=lambda ask: len(ask.ids))
            for at in range(0, len(waiting), self._batch_size):
                self._answer(waiting[at : at + self._batch_size])

    def _answer(self, batch: list[_Ask]) -> None:
        try:
            results: list[Any] = self._forward([ask.ids for ask in batch])
        except Exception as error:
            if len(batch) > 1:  # out of memory, or one bad row: each for itself
                for ask in batch:
                    self._answer([ask])
                return
            results = [ScorerError(f"the reward model failed: {shown(error)}")]
        for ask, result in zip(batch, results, strict=True):
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits
                ask.loop.call_soon_threadsafe(_settle, ask.answer, result)

    def _forward(self, rows: list[list[int]]) -> list[list[float]]:
        """Raw outputs, one list a row: float32 [labels]."""
        import torch

        width = max(len(ids) for ids in rows) or 1
        pad = self._model.config.pad_token_id
        left = getattr(self.tokenizer, "padding_side", "right") == "left"
        ids = torch.full((len(rows), width), pad, dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for at, row in enumerate(rows):
            place = slice(width - len(row), width) if left else slice(0, len(row))
            ids[at, place] = torch.tensor(row, dtype=torch.long)
            mask[at, place] = 1
        with torch.inference_mode():
            logits = self._model(
                input_ids=ids.to(self._model.device), attention_mask=mask.to(self._model.device)
            ).logits
        outputs: list[list[float]] = logits.float().cpu().tolist()
        return outputs

    async def close(self) -> None:
        """End the thread; it is a daemon, should a forward pass still run."""
        self._encoder.shutdown(wait=False, cancel_futures=True)
        self._asked.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 5.0)


def _settle(answer: asyncio.Future[list[float]], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _device(name: str, torch: Any) -> str:
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def _set_padding(model: Any, tokenizer: Any) -> None:
    """A pad token, known to both: without it models of the Llama kind judge the wrong token."""
    pad = model.config.pad_token_id
    if pad is None:
        pad = tokenizer.pad_token_id
    if pad is None:
        pad = tokenizer.eos_token_id
    if pad is None:
        raise SettingsError("reward.reward_model.path: neither a pad token nor an eos token is set")
    model.config.pad_token_id = int(pad)


def _longest(model: Any, tokenizer: Any) -> int:
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    return min([int(limit) for limit in limits if limit and limit < NO_LIMIT] or [NO_LIMIT])
