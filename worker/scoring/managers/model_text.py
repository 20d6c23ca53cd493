"""What a reward model reads: the conversation in the model's own chat template."""

from __future__ import annotations

from typing import Any

from worker.rewards.errors import BadInput
from worker.scoring.rows import Row


class Templater:
    """Applies a tokenizer's chat template; plain lines where it has none."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._bos = getattr(tokenizer, "bos_token", None) or ""
        self._has_template = bool(getattr(tokenizer, "chat_template", None))

    def text(self, row: Row) -> str:
        """Prompt and response as one text, without a leading bos: encoding adds it.

        Raises BadInput if the template refuses the messages.
        """
        if not self._has_template:
            prompt = row.prompt_text()
            return f"{prompt}\n{row.text}" if prompt else row.text
        answer = {"role": "assistant", "content": row.text}
        try:
            text: str = self._tokenizer.apply_chat_template(
                [*row.messages(), answer], add_generation_prompt=False, tokenize=False
            )
        except Exception as error:
            raise BadInput(f"messages: the reward model's template refuses them: {error}") from None
        return text.removeprefix(self._bos) if self._bos else text
