"""A lease: the right to one call in flight, held under an id until it expires."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from limiter.errors import BadLimits, LeaseLost

if TYPE_CHECKING:
    from limiter.owner import Owner
    from limiter.sync import SyncOwner

OVERAGE_DELAY_S = 0.05  # a settle as the last act of a block travels with the release


class Stated:
    """What a lease has been told of its use; shared by both faces."""

    id: str
    fence: int
    tokens: int
    used: int | None

    def state(self, tokens: int) -> int:
        """Note the total so far; while the lease is held it only rises. Returns the total."""
        self.used = max(checked_tokens(tokens), self.used or 0)
        return self.used


def checked_tokens(tokens: int) -> int:
    """Return a number of tokens that makes sense. Raises BadLimits."""
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise BadLimits(f"tokens: must be a whole number of at least 0, got {tokens!r}")
    return min(tokens, 2**53 - 2)


class Lease(Stated):
    """A lease of the asyncio face; kept alive in the background until it is released.

    `fence` counts up with every grant of this limit; `lost` turns true when Redis has given the
    place to others.
    """

    def __init__(
        self, owner: Owner, call_id: str, fence: int, tokens: int, lease_ms: int, *, renew: bool
    ) -> None:
        self.id, self.fence, self.tokens = call_id, fence, tokens
        self.lease_ms, self.renew = lease_ms, renew
        self.granted_at = owner.loop.time()
        self.used: int | None = None
        self.lost = False
        self.released = False
        self._owner = owner
        self._late: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> str:
        """The name of the limit."""
        return self._owner.limits.name

    def left_ms(self) -> int:
        """Milliseconds the lease should last from now."""
        if self.renew:
            return self.lease_ms
        return max(1, self.lease_ms - int((self._owner.loop.time() - self.granted_at) * 1000))

    async def settle(self, tokens: int) -> None:
        """Say what the call has used in total so far; what exceeds the reservation is charged.

        Tokens not used are given back at the release. Raises LeaseLost after expiry.
        """
        if self.lost:
            raise LeaseLost(self.limit, self.id)
        if self.state(tokens) > self.tokens and not self.released and self._late is None:
            self._late = self._owner.loop.call_later(OVERAGE_DELAY_S, self._send_overage)

    def _send_overage(self) -> None:
        self._late = None
        if not self.released and self.used is not None:
            self._owner.settle_soon(self, self.used)

    async def release(self, *, tokens: int | None = None) -> None:
        """End the lease; `tokens` is the final total, else what was settled, else the reservation.

        A second release does nothing. Raises LeaseLost if the place was already given to others.
        """
        if self.released:
            return
        self.end()
        used = checked_tokens(tokens) if tokens is not None else self.used
        await self._owner.release(self, used)

    def cancel(self) -> asyncio.Task[None]:
        """Give everything back as if it had never been granted: the call was never made.

        Returns the work, which goes on by itself.
        """
        self.end()
        return self._owner.cancel(self)

    def end(self) -> None:
        """Mark as released here; nothing is sent."""
        self.released = True
        if self._late is not None:
            self._late.cancel()
            self._late = None


class LeaseBlock:
    """`async with limiter.lease(...) as lease`: acquired on entry, released on exit, always."""

    def __init__(
        self, owner: Owner, tokens: int, timeout_s: float | None, **options: object
    ) -> None:
        self._owner, self._tokens, self._timeout_s, self._options = (
            owner,
            tokens,
            timeout_s,
            options,
        )
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        self._lease = await self._owner.acquire(self._tokens, self._timeout_s, **self._options)  # type: ignore[arg-type]
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._lease is not None
        try:
            await self._lease.release()
        except LeaseLost:
            if error is None:
                raise


class SyncLease(Stated):
    """A lease of the sync face: nobody renews it, so `lease_s` must outlast the call."""

    def __init__(
        self, owner: SyncOwner, call_id: str, fence: int, tokens: int, lease_ms: int
    ) -> None:
        self.id, self.fence, self.tokens, self.lease_ms = call_id, fence, tokens, lease_ms
        self.used: int | None = None
        self.lost = False
        self.released = False
        self._owner = owner

    @property
    def limit(self) -> str:
        """The name of the limit."""
        return self._owner.limits.name

    def settle(self, tokens: int) -> None:
        """Say what the call has used in total so far. Raises LeaseLost after expiry."""
        if self.lost:
            raise LeaseLost(self.limit, self.id)
        if self.state(tokens) > self.tokens and not self.released:
            self._owner.settle(self, tokens)

    def renew(self) -> None:
        """Let the lease last `lease_s` from now. Raises LeaseLost if it has expired."""
        self._owner.renew(self)

    def release(self, *, tokens: int | None = None) -> None:
        """End the lease; `tokens` is the final total, else what was settled or reserved."""
        if self.released:
            return
        self.released = True
        self._owner.release(self, checked_tokens(tokens) if tokens is not None else self.used)

    def __enter__(self) -> SyncLease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LeaseLost:
            if error is None:
                raise
