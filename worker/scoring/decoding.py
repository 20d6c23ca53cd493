"""Turning response ids into text with the tokenizer the settings name.

Responses of ordinary length are decoded on the loop where a table does it (a change of threads
costs more), long ones and those of other tokenizers in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from worker.rewards.errors import BadInput
from worker.scoring.detokenizer import ByteTable
from worker.scoring.rows import Row, id_list
from worker.settings import SettingsError

THREADS = 4
#: Tokens that are decoded on the loop: a millisecond at most.
ON_LOOP = 16_384


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
    """Decodes ids; without a tokenizer a row without text is `bad_input`."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._table = None if tokenizer is None else ByteTable.of(tokenizer)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="rewardpool-decoder")

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
                row.texts[at] = await self._text(ids, at)

    async def _text(self, ids: Any, at: int) -> str:
        try:
            if self._table is not None and 1 < len(ids) <= ON_LOOP:
                with contextlib.suppress(LookupError):
                    return self._table.text(ids)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._decode, ids)
        except (ValueError, TypeError, OverflowError, LookupError) as error:
            raise BadInput(
                f"outputs[{at}].response_ids: the tokenizer cannot decode them: {error}"
            ) from None

    def _decode(self, ids: Any) -> str:
        text: str = self.tokenizer.decode(id_list(ids), skip_special_tokens=True)
        return text

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
