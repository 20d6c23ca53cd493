"""One owner: what one event loop of one process holds and waits for under one limit.

Grants reach a waiter in the reply to any of our calls, in our mailbox, or, should both be lost, in
the answer to the next beat.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from limiter import replies
from limiter.errors import (
    AcquireTimeout,
    CostExceedsCapacity,
    LeaseLost,
    LimiterClosed,
    LimiterError,
    LimiterUnavailable,
)
from limiter.lease import Lease
from limiter.limits import Limits
from limiter.mailbox import Mailbox
from limiter.replies import Answer, Grant, Letter, Rides
from limiter.ticket import Ticket
from limiter.transport import Transport, logger, new_id

BEAT_S = 3.0
HOLD_MS = 12_000  # a handed-over lease lasts so long until a beat confirms it
HELD_A_BEAT, WAITING_A_BEAT = 200, 500
RELEASE_PATIENCE_S = 1.0
UNDO_PATIENCE_S = 30.0
CLOSE_PATIENCE_S = 2.0


class Owner:
    """Acquires, keeps alive and gives back; made at first use on a loop."""

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
        self._beat_at = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._janitor = self.loop.create_task(self._close_with_loop())

    # --- acquiring ---

    async def acquire(
        self,
        tokens: int,
        timeout_s: float | None,
        *,
        lease_ms: int,
        renew: bool,
        head_start_ms: int,
        instead_of: tuple[Lease, int | None] | None = None,
    ) -> Lease:
        """Return a lease, or raise; cancelled at any point it leaves nothing behind.

        `instead_of` is a lease, with its use, that is released in the same trip.
        """
        ticket = Ticket(self.loop, tokens, timeout_s, lease_ms, head_start_ms)
        self.tickets[ticket.id] = ticket
        try:
            await self._ask(ticket, instead_of)
            fence = await self._granted(ticket)
        except BaseException as error:
            undone = self._undo(ticket, timed_out=isinstance(error, AcquireTimeout))
            if undone is not None and isinstance(error, AcquireTimeout):
                await asyncio.wait({undone}, timeout=0.05)
            raise
        finally:
            self.tickets.pop(ticket.id, None)
        lease = Lease(self, ticket.id, fence, tokens, lease_ms, renew=renew)
        self.leases[lease.id] = lease
        self._keep()
        self._beat_in(self.pace_s())
        return lease

    async def _ask(
        self, ticket: Ticket, instead_of: tuple[Lease, int | None] | None = None
    ) -> None:
        """Send the acquire and note what became of it on the ticket."""
        times = (ticket.lease_ms, ticket.wait_ms(), HOLD_MS, ticket.head_start_ms)
        call = (ticket.id, self.id, ticket.tokens, *times)
        ticket.asked = True
        if instead_of is None:
            reply = await self.transport.call("acquire", *call, deadline=ticket.deadline)
        else:
            lease, used = instead_of
            old = (lease.id, lease.fence, -1 if used is None else used)
            both = await self.transport.call("exchange", *old, *call, deadline=ticket.deadline)
            lease.lost = lease.lost or int(both[0]) < 0
            reply = both[1]
        self._note(ticket, replies.read_acquire(reply))

    def _note(self, ticket: Ticket, answer: Answer) -> None:
        if answer.code == replies.GRANTED:
            ticket.grant(answer.fence)
        elif answer.code == replies.IMPOSSIBLE:
            ticket.asked = False
            ticket.fail(CostExceedsCapacity(self.limits.name, ticket.tokens, answer.largest))
        elif answer.code == replies.ENDED:
            self._ask_anew(ticket)
        elif answer.place == 0:
            ticket.asked = False
            ticket.fail(self._timeout(ticket, answer))
        else:
            ticket.layers = answer.layers
            if answer.wait_ms >= 0:
                self._beat_in(answer.wait_ms / 1000)
        self.take(answer.rides)

    async def _granted(self, ticket: Ticket) -> int:
        if not ticket.future.done():
            self._keep()
            self._read()
            await asyncio.wait({ticket.future}, timeout=ticket.left_s())
        if not ticket.future.done():
            raise self._timeout(ticket, None)
        return ticket.future.result()

    def _timeout(self, ticket: Ticket, answer: Answer | None) -> AcquireTimeout:
        retry_s = answer.wait_ms / 1000 if answer is not None and answer.wait_ms >= 0 else None
        layers = replies.layer_names(answer.layers if answer is not None else ticket.layers)
        return AcquireTimeout(self.limits.name, ticket.timeout_s or 0.0, retry_s, layers)

    def _ask_anew(self, ticket: Ticket) -> None:
        """Our id has ended there (we were silent too long): stand in line again under another."""
        if ticket.future.done() or self.tickets.pop(ticket.id, None) is None:
            return
        logger.warning("place in line lost limit=%s waiter=%s", self.limits.name, ticket.id)
        ticket.id = new_id()
        self.tickets[ticket.id] = ticket
        self._ask_soon(ticket)

    def _ask_soon(self, ticket: Ticket) -> None:
        async def ask() -> None:
            try:
                await self._ask(ticket)
            except LimiterError as error:
                ticket.fail(error)

        self.transport.spawn(ask())

    def _undo(self, ticket: Ticket, *, timed_out: bool) -> asyncio.Task[Any] | None:
        """Give back whatever the ticket has, or will have when its acquire arrives."""
        if not ticket.asked or self.transport.closed:
            return None
        return self.transport.spawn(self._cancel(ticket.id, timed_out=timed_out))

    async def _cancel(self, call_id: str, *, timed_out: bool) -> None:
        deadline = self.loop.time() + UNDO_PATIENCE_S
        flag = int(timed_out)
        reply = await self.transport.call("cancel", call_id, self.id, flag, deadline=deadline)
        self.take(replies.read_code(reply)[1])

    # --- giving back ---

    async def release(self, lease: Lease, used: int | None) -> None:
        """End a lease. With Redis out of reach this ends quietly: the lease expires by itself."""
        self.leases.pop(lease.id, None)
        if self.transport.closed:
            return
        work = self.transport.spawn(self._release(lease, -1 if used is None else used))
        done, _ = await asyncio.wait({work}, timeout=RELEASE_PATIENCE_S)
        if not done:
            logger.warning("release delayed limit=%s lease=%s", self.limits.name, lease.id)
        elif not work.cancelled() and work.exception() is not None:
            logger.warning(
                "release failed limit=%s lease=%s reason=%s",
                self.limits.name,
                lease.id,
                work.exception(),
            )
        if lease.lost:
            logger.warning("lease lost limit=%s lease=%s", self.limits.name, lease.id)
            raise LeaseLost(self.limits.name, lease.id)

    async def _release(self, lease: Lease, used: int) -> None:
        deadline = self.loop.time() + max(lease.lease_ms / 1000, RELEASE_PATIENCE_S)
        reply = await self.transport.call(
            "release", lease.id, lease.fence, used, self.id, deadline=deadline
        )
        code, rides = replies.read_code(reply)
        lease.lost = lease.lost or code < 0
        self.take(rides)

    def settle_soon(self, lease: Lease, used: int) -> None:
        """Charge what a held lease has used beyond its reservation."""
        self.transport.spawn(self._settle(lease, used))

    async def _settle(self, lease: Lease, used: int) -> None:
        deadline = self.loop.time() + lease.lease_ms / 1000
        reply = await self.transport.call(
            "settle", lease.id, lease.fence, used, self.id, deadline=deadline
        )
        code, rides = replies.read_code(reply)
        lease.lost = lease.lost or (code < 0 and not lease.released)
        self.take(rides)

    # --- what we are told ---

    async def simple(self, verb: str, *args: str | int, timeout_s: float) -> int:
        """Run throttle or resume; returns its number."""
        deadline = self.loop.time() + timeout_s
        reply = await self.transport.call(verb, *args, self.id, deadline=deadline)
        code, rides = replies.read_code(reply)
        self.take(rides)
        return code

    def take(self, rides: Rides) -> None:
        """Hand on what rode in a reply."""
        for grant in rides.grants:
            self._give(grant)
        if rides.head in self.tickets and rides.head_wait_ms >= 0:
            self._beat_in(rides.head_wait_ms / 1000)

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
            self._beat_in(letter.value / 1000)

    # --- beats and mail ---

    def _beat_in(self, seconds: float) -> None:
        at = self.loop.time() + seconds
        if at < self._beat_at:
            self._beat_at = at
            self._nudge.set()

    def pace_s(self) -> float:
        """Seconds between beats: three of them in the shortest lease that is to be renewed."""
        renewed = (lease.lease_ms / 3000 for lease in self.leases.values() if lease.renew)
        return min(BEAT_S, *renewed, BEAT_S)

    def _keep(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._beat_at = min(self._beat_at, self.loop.time() + BEAT_S)
            if self._beat_at < self.loop.time():
                self._beat_at = self.loop.time() + BEAT_S
            self._keeper = self.loop.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
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
                self._beat_in(1.0)

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
                self._ask_soon(ticket)
        if beat.next_ms >= 0 and self.tickets:
            self._beat_in(beat.next_ms / 1000)

    def _lose(self, lease_id: str) -> None:
        lease = self.leases.pop(lease_id, None)
        if lease is not None:
            lease.lost = True
            logger.warning("lease lost limit=%s lease=%s", self.limits.name, lease_id)

    def _read(self) -> None:
        if self._reader is None or self._reader.done():
            self._reader = self.loop.create_task(self._read_mail())

    async def _read_mail(self) -> None:
        while self.tickets:
            for letter in await self.mailbox.read():
                self._open(letter)
            if self.mailbox.broken:
                self._beat_in(0.1)  # what was on its way may be lost: ask

    # --- the end ---

    async def close(self) -> None:
        """End everything: waiters get LimiterClosed, leases are released, connections closed."""
        for ticket in list(self.tickets.values()):
            ticket.fail(LimiterClosed(f"{self.limits.name}: the limiter was closed"))
        for lease in list(self.leases.values()):
            if not lease.released:
                lease.end()
                self.leases.pop(lease.id, None)
                used = -1 if lease.used is None else lease.used
                self.transport.spawn(self._release(lease, used))
        await asyncio.sleep(0)
        await self._end(CLOSE_PATIENCE_S)
        self._janitor.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._janitor

    async def _end(self, patience_s: float) -> None:
        workers = [task for task in (self._keeper, self._reader) if task is not None]
        for task in workers:
            task.cancel()
        if workers:
            await asyncio.wait(workers)
        await self.transport.finish(patience_s)
        await self.mailbox.close()

    async def _close_with_loop(self) -> None:
        """Close the connections when the loop is shut down under us."""
        try:
            await self.loop.create_future()
        finally:
            if not self.transport.closed:
                await self._end(0.2)
