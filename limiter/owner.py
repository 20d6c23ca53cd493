"""One owner: what one event loop of one process holds and waits for under one limit.

How it comes to hold leases and gives them back; `pulse.py` keeps them alive.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from limiter import replies
from limiter.errors import (
    AcquireTimeout,
    CostExceedsCapacity,
    LeaseLost,
    LimiterClosed,
    LimiterError,
)
from limiter.lease import Lease
from limiter.limits import Limits
from limiter.pulse import Pulse
from limiter.replies import Answer
from limiter.ticket import Ticket
from limiter.transport import logger, new_id

HOLD_MS = 12_000  # a handed-over lease lasts so long until a beat confirms it
RELEASE_PATIENCE_S = 1.0
UNDO_PATIENCE_S = 30.0
CLOSE_PATIENCE_S = 2.0


class Owner(Pulse):
    """Acquires, keeps alive and gives back; made at first use on a loop."""

    def __init__(self, url: str, limits: Limits) -> None:
        super().__init__(url, limits)
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
        self.keep()
        self.beat_in(self.pace_s())
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
                self.beat_in(answer.wait_ms / 1000)
        self.take(answer.rides)

    async def _granted(self, ticket: Ticket) -> int:
        if not ticket.future.done():
            self.keep()
            self.read()
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
        self.ask_soon(ticket)

    def ask_soon(self, ticket: Ticket) -> None:
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

    def cancel(self, lease: Lease) -> asyncio.Task[Any]:
        """Take a grant back, charges included."""
        self.leases.pop(lease.id, None)
        return self.transport.spawn(self._cancel(lease.id, timed_out=False))

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

    # --- telling ---

    async def simple(self, verb: str, *args: str | int, timeout_s: float) -> int:
        """Run throttle or resume; returns its number."""
        deadline = self.loop.time() + timeout_s
        reply = await self.transport.call(verb, *args, self.id, deadline=deadline)
        code, rides = replies.read_code(reply)
        self.take(rides)
        return code

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
