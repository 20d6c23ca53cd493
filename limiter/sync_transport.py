"""How the sync face reaches Redis: one command at a time, packed here, retried until a deadline."""

from __future__ import annotations

import os
import time
from typing import Any

import redis

from limiter import faults, replies, scripts
from limiter.errors import LimiterClosed, LimiterUnavailable
from limiter.keys import Keys
from limiter.limits import Limits
from limiter.transport import FIRST_PAUSE_S, LONGEST_PAUSE_S, logger, new_id, who


def _packed(part: str | int) -> bytes:
    """One part of a command as it travels."""
    text = str(part).encode()
    return b"$%d\r\n%b\r\n" % (len(text), text)


class SyncTransport:
    """The scripts of one limit for one thread; an owner by its id."""

    def __init__(self, client: Any, limits: Limits) -> None:
        self.client, self.limits = client, limits
        self.keys = Keys.of(limits.name)
        self.id = new_id()
        self.pid = os.getpid()
        self.closed = False
        self.trips = 0
        self._declared = False
        self._heads: dict[tuple[str, int], bytes] = {}

    # --- calls ---

    def call(self, verb: str, *args: str | int, deadline: float | None) -> Any:
        """Run a script until it answers or `deadline` (monotonic, None for ever) has passed."""
        pause_s = FIRST_PAUSE_S
        while True:
            if self.closed:
                raise LimiterClosed(f"{self.limits.name}: the limiter is closed")
            try:
                return self._declared_send(verb, args)
            except (redis.RedisError, OSError) as error:
                left_s = pause_s if deadline is None else deadline - time.monotonic()
                if left_s <= 0 or not faults.passes(error):
                    raise LimiterUnavailable(self.limits.name, faults.reason(error)) from error
            time.sleep(min(pause_s, left_s))
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _declared_send(self, verb: str, args: tuple[str | int, ...]) -> Any:
        if not self._declared:
            self._declare()
        reply = self.send(verb, *args)
        if replies.lacks_settings(reply):
            self._declare()
            reply = self.send(verb, *args)
        return reply

    def _declare(self) -> None:
        reply = self.send("configure", "declare", who(), -1, *self.limits.to_wire(), "-")
        if int(reply[0]) == 1:
            logger.info("limits declared limit=%s by=%s", self.limits.name, who())
        self._declared = True

    def send(self, verb: str, *args: str | int) -> Any:
        """Run a script once; its text travels only when Redis does not know it.

        Packed here, with a beginning that is made once: half of a call's time at the client would
        otherwise go into packing the same keys again.
        """
        self.trips += 1
        head = self._heads.get((verb, len(args)))
        if head is None:
            head = self._heads[verb, len(args)] = self._head(verb, len(args))
        try:
            return self._trip(head + b"".join(map(_packed, args)))
        except redis.exceptions.NoScriptError:
            self.trips += 1
            keys = self.keys.all
            return self.client.execute_command(
                "EVAL", scripts.load(verb).text, len(keys), *keys, *args
            )

    def _head(self, verb: str, arguments: int) -> bytes:
        keys = self.keys.all
        parts: tuple[str | int, ...] = ("EVALSHA", scripts.load(verb).sha, len(keys), *keys)
        return b"*%d\r\n" % (len(parts) + arguments) + b"".join(map(_packed, parts))

    def _trip(self, command: bytes) -> Any:
        pool = self.client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([command])
            return connection.read_response()
        except redis.ResponseError:
            raise  # the reply was read: the connection is sound
        except BaseException:
            connection.disconnect()  # a reply may be on its way to somebody else
            raise
        finally:
            pool.release(connection)
