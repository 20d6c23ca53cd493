"""Reading many keys of which some may have been filled by somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from queue_client.connecting import ReplyTooLarge

Command = tuple[Any, ...]


def read(connection: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Return the replies of all commands, in one round trip; an error stands in its reply's place.

    A reply that the connection refuses for its size is such an error: the others are read apart
    from it, by halves. Raises RedisError when Redis is away.
    """
    if not commands:
        return []
    try:
        with connection.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            return list(pipeline.execute(raise_on_error=False))
    except ReplyTooLarge:
        pass  # and its traceback goes, which holds what was read so far
    if len(commands) == 1:
        return [ReplyTooLarge("too large to be read")]
    middle = len(commands) // 2
    return [*read(connection, commands[:middle]), *read(connection, commands[middle:])]
