"""The pulse of one owner: beats, mail, and what both bring.

One beat every three seconds keeps alive all that an owner holds and waits for. Grants reach a
waiter in the reply to any of our calls, in our mailbox, or, should both be lost, in the answer to
the next beat.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os

from limiter import replies
from limiter.errors import CostExceedsCapacity, LimiterUnavailable
from limiter.lease import Lease
from limiter.limits import Limits
from limiter.mailbox import Mailbox
from limiter.replies import Grant, Letter, Rides
from limiter.ticket import Ticket
from limiter.transport import Transport, logger, new_id

BEAT_S = 3.0
HELD_A_BEAT, WAITING_A_BEAT = 200, 500


class Pulse:
    """What an owner holds and waits for, kept alive; `Owner` adds how it comes and goes."""

    def __init__(self, url: str, limits: Limits) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.id = new_id()
        self.limits = limits
        self.transport = Transport(url, limits, self.loop)
        self.mailbox = Mailbox(url, self.transport.keys.mail(self.id))
        self.tickets: dict[str, Ticket] = {}
        self.leases: dict[str, Lease] = {}
        self._nudge = asyncio.Event()
        self._beat_at = math.inf  # until somebody asks for a beat
        self._keeper: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None

    # --- what we are told ---

    def take(self, rides: Rides) -> None:
        """Hand on what rode in a reply."""
        for grant in rides.grants:
            self._give(grant)
        if rides.head in self.tickets and rides.head_wait_ms >= 0:
            self.beat_in(rides.head_wait_ms / 1000)

    def _give(self, grant: Grant) -> None:
        ticket = self.tickets.get(grant.id)
        if ticket is not None:
            ticket.grant(grant.fence)

    def _open(self, letter: Letter) -> None:
        ticket = self.tickets.get(letter.id)
        if ticket is None:
            return
        if letter.kind == "g":
            ticket.grant(letter.value)
        elif letter.kind == "x":
            ticket.asked = False
            ticket.fail(CostExceedsCapacity(self.limits.name, ticket.tokens, letter.value))
        elif letter.value >= 0:
            self.beat_in(letter.value / 1000)

    # --- beats and mail ---

    def beat_in(self, seconds: float) -> None:
        at = self.loop.time() + seconds
        if at < self._beat_at:
            self._beat_at = at
            self._nudge.set()

    def pace_s(self) -> float:
        """Seconds between beats: three of them in the shortest lease that is to be renewed."""
        renewed = (lease.lease_ms / 3000 for lease in self.leases.values() if lease.renew)
        return min(BEAT_S, *renewed, BEAT_S)

    def keep(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._beat_at = min(self._beat_at, self.loop.time() + BEAT_S)
            self._keeper = self.loop.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        try:
            await self._beat_on()
        finally:
            self._beat_at = math.inf  # or the first wait after a quiet time would come late

    async def _beat_on(self) -> None:
        while self.tickets or self.leases:
            self._nudge.clear()
            left_s = self._beat_at - self.loop.time()
            if left_s > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._nudge.wait(), left_s)
                continue
            self._beat_at = self.loop.time() + self.pace_s()
            try:
                await self._beat()
            except LimiterUnavailable as error:
                logger.warning("beat failed limit=%s reason=%s", self.limits.name, error.reason)
                self.beat_in(1.0)

    async def _beat(self) -> None:
        held, waiting = list(self.leases.values()), list(self.tickets)
        while True:
            some, held = held[:HELD_A_BEAT], held[HELD_A_BEAT:]
            ids, waiting = waiting[:WAITING_A_BEAT], waiting[WAITING_A_BEAT:]
            await self._beat_some(some, ids)
            if not held and not waiting:
                return

    async def _beat_some(self, held: list[Lease], waiting: list[str]) -> None:
        args: list[str | int] = [self.id, len(held)]
        for lease in held:
            args += [lease.id, lease.fence, lease.tokens, lease.left_ms()]
        deadline = self.loop.time() + BEAT_S
        reply = await self.transport.call("beat", *args, *waiting, deadline=deadline)
        beat = replies.read_beat(reply)
        self.take(beat.rides)
        for grant in beat.granted:
            self._give(grant)
        for lease_id in beat.lost:
            self._lose(lease_id)
        for call_id in beat.unknown:
            ticket = self.tickets.get(call_id)
            if ticket is not None and not ticket.future.done() and call_id in waiting:
                self.ask_soon(ticket)
        if beat.next_ms >= 0 and self.tickets:
            self.beat_in(beat.next_ms / 1000)

    def _lose(self, lease_id: str) -> None:
        lease = self.leases.pop(lease_id, None)
        if lease is not None:
            lease.lost = True
            logger.warning("lease lost limit=%s lease=%s", self.limits.name, lease_id)

    def read(self) -> None:
        if self._reader is None or self._reader.done():
            self._reader = self.loop.create_task(self._read_mail())

    async def _read_mail(self) -> None:
        while self.tickets:
            for letter in await self.mailbox.read():
                self._open(letter)
            if self.mailbox.broken:
                self.beat_in(0.1)  # what was on its way may be lost: ask

    def ask_soon(self, ticket: Ticket) -> None:
        """Send a ticket's acquire again; the owner knows how."""
        raise NotImplementedError
