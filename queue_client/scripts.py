"""Lua scripts by name: sent by hash, loaded when the server does not know them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import redis

Call = tuple[Sequence[str], Sequence[Any]]  # keys, arguments


class Script:
    """One script; reading its file waits for the first use."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def text(self) -> str:
        """The script's source."""
        return _text(self.name)

    @property
    def sha(self) -> str:
        """What the server knows it by."""
        return _sha(self.name)

    def __call__(self, client: redis.Redis, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run it once. Raises what redis-py raises."""
        [reply] = self.run_many(client, [(keys, args)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def run_many(self, client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        """Run it for each call in one round trip; a call's error stands in place of its reply."""
        replies = self._send(client, calls)
        if any(isinstance(reply, redis.exceptions.NoScriptError) for reply in replies):
            client.script_load(self.text)
            unknown = [
                at
                for at, reply in enumerate(replies)
                if isinstance(reply, redis.exceptions.NoScriptError)
            ]
            again = self._send(client, [calls[at] for at in unknown])
            for at, reply in zip(unknown, again, strict=True):
                replies[at] = reply
        return replies

    def _send(self, client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        pipeline: Any = client.pipeline(transaction=False)
        for keys, args in calls:
            pipeline.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        return replies


@cache
def _text(name: str) -> str:
    return files("lua").joinpath(f"{name}.lua").read_text(encoding="utf-8")


@cache
def _sha(name: str) -> str:
    return hashlib.sha1(_text(name).encode(), usedforsecurity=False).hexdigest()
