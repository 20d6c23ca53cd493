"""Turning response ids into text with the tokenizer the settings name.

Rows that ask within one turn of the loop are decoded together, in one thread, off the loop.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from worker.rewards.errors import BadInput
from worker.scoring.rows import Row, id_list
from worker.settings import SettingsError

MAX_BATCH = 256


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer from a folder or by its hub name. Raises SettingsError."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise SettingsError(
            f"reward.tokenizer: {name!r} needs transformers: pip install 'rewardpool[tokenizer]' "
            f"({error})"
        ) from None
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=Path(name).is_dir())
    except Exception as error:
        raise SettingsError(f"reward.tokenizer: {name!r} cannot be loaded: {error}") from error


class Decoder:
    """Decodes batches of ids; without a tokenizer a row without text is `bad_input`."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rewardpool-decoder")
        self._pending: list[tuple[Any, asyncio.Future[str]]] = []
        self._running = False

    async def fill(self, row: Row, *, all_outputs: bool) -> None:
        """Give the row the texts it lacks. Raises BadInput that names the output."""
        for at in row.undecoded(all_outputs=all_outputs):
            ids = row.trajectory.outputs[at].response_ids
            if ids is None:
                raise BadInput(f"outputs[{at}]: neither text nor response_ids")
            if len(ids) == 0:
                row.texts[at] = ""
            elif self.tokenizer is None:
                raise BadInput(f"outputs[{at}].text: none, and no reward.tokenizer is set")
            else:
                row.texts[at] = await self._decode(ids)

    async def _decode(self, ids: Any) -> str:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str] = loop.create_future()
        self._pending.append((ids, done))
        if not self._running:
            self._running = True
            loop.call_soon(self._dispatch, loop)
        return await done

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
        if not batch:
            self._running = False
            return
        call = loop.run_in_executor(self._thread, self._texts, [ids for ids, _ in batch])
        call.add_done_callback(lambda finished: self._hand_out(loop, batch, finished))

    def _hand_out(self, loop: asyncio.AbstractEventLoop, batch: Any, finished: Any) -> None:
        texts = [] if finished.cancelled() or finished.exception() else finished.result()
        for at, (_, done) in enumerate(batch):
            if done.done():
                continue
            if at < len(texts) and texts[at] is not None:
                done.set_result(texts[at])
            else:
                done.set_exception(BadInput("response_ids: the tokenizer cannot decode them"))
        self._dispatch(loop)

    def _texts(self, many: list[Any]) -> list[str | None]:
        listed = [id_list(ids) for ids in many]
        try:
            decoded: list[str | None] = self.tokenizer.batch_decode(
                listed, skip_special_tokens=True
            )
        except Exception:  # one bad row must not cost the others
            return [self._text(ids) for ids in listed]
        return decoded

    def _text(self, ids: list[int]) -> str | None:
        try:
            text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
        except Exception:  # out of the vocabulary, negative, too large: the row's own fault
            return None
        return text

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
