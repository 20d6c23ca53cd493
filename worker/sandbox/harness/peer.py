"""Two processes that ask each other over a pair of pipes: one JSON message a line, in turn.

While a side waits for its answer it serves the other's questions, so a check may pass a function
to the program and the program may call it.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

LONGEST_MESSAGE = 64 * 1024 * 1024
_CHUNK = 1 << 16

if TYPE_CHECKING:
    Message = dict[str, Any]


class Gone(BaseException):
    """The other side ended, or sent what is not a message."""


class OutOfTime(BaseException):
    """The other side took too long."""


class Peer:
    """One end; `serve` answers the other side's questions, `deadline` is on the monotonic clock."""

    def __init__(
        self,
        reading: int,
        writing: int,
        serve: Callable[[Message], Message],
        deadline: float | None = None,
    ) -> None:
        self._reading, self._writing, self._serve = reading, writing, serve
        self._deadline = deadline
        self._kept = bytearray()

    def ask(self, message: Message) -> Message:
        """Send a question and return its answer. Raises Gone, OutOfTime."""
        self.send(message)
        while True:
            answer = self.receive()
            if "q" not in answer:
                return answer
            self.send(self._serve(answer))

    def answer_for_ever(self) -> None:
        """Serve the other side until it is gone."""
        while True:
            self.send(self._serve(self.receive()))

    def receive(self) -> Message:
        """Return the next message. Raises Gone, OutOfTime."""
        place = self._kept.find(b"\n")
        while place < 0:
            before = len(self._kept)
            self._kept += self._read()
            if len(self._kept) > LONGEST_MESSAGE:
                raise Gone("message too long")
            place = self._kept.find(b"\n", before)
        line = bytes(self._kept[:place])
        del self._kept[: place + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise Gone("not a message") from None
        if not isinstance(message, dict):
            raise Gone("not a message")
        return message

    def _read(self) -> bytes:
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._reading], [], [], left)[0]:
                raise OutOfTime
        chunk = os.read(self._reading, _CHUNK)
        if not chunk:
            raise Gone("ended")
        return chunk

    def send(self, message: Message) -> None:
        """Send one message. Raises Gone, OutOfTime."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        view = memoryview(data)
        try:
            while view:
                view = view[self._write(view) :]
        except BrokenPipeError:
            raise Gone("ended") from None

    def _write(self, view: memoryview) -> int:
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([], [self._writing], [], left)[1]:
                raise OutOfTime
        return os.write(self._writing, view[:4096])
