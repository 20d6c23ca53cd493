"""The limiter: leases under one named limit, for asyncio and, through `sync`, for threads."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from limiter import replies
from limiter.admin import Change, changed_limits, checked_code
from limiter.errors import BadLimits, LimiterClosed
from limiter.lease import Lease, LeaseBlock, checked_tokens
from limiter.limits import Limits
from limiter.options import checked_options, checked_retry_ms
from limiter.owner import Owner
from limiter.sync import SyncLimiter
from limiter.transport import who
from limiter.usage import Minute, Usage, read_history, read_usage

CONTROL_TIMEOUT_S = 10.0


class Limiter:
    """Leases under one named limit; every process on every host asks the same Redis first.

    One object may be used from several event loops, from threads (`sync`) and after a fork: each
    gets an owner of its own at first use. Nothing is sent before that.
    """

    def __init__(self, url: str, limits: Limits) -> None:
        if not isinstance(limits, Limits):
            raise BadLimits(f"limits: must be Limits, got {limits!r}")
        self.url, self.limits = url, limits
        self.sync = SyncLimiter(url, limits)
        self._owners: dict[int, Owner] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"Limiter({self.limits!r})"

    @property
    def name(self) -> str:
        """The name of the limit."""
        return self.limits.name

    def owner(self) -> Owner:
        """Return the owner of the running loop in this process."""
        loop = asyncio.get_running_loop()
        owner = self._owners.get(id(loop))
        if owner is not None and owner.loop is loop and owner.pid == os.getpid():
            return owner
        if self._closed:
            raise LimiterClosed(f"{self.name}: the limiter is closed")
        with self._lock:
            pid = os.getpid()
            self._owners = {
                key: old
                for key, old in self._owners.items()
                if old.pid == pid and not old.loop.is_closed()
            }
            owner = self._owners[id(loop)] = Owner(self.url, self.limits)
        return owner

    def lease(
        self,
        *,
        tokens: int = 0,
        timeout_s: float | None = None,
        lease_s: float = 60.0,
        renew: bool = True,
        head_start_s: float = 0.0,
    ) -> LeaseBlock:
        """Return a block that holds a lease: `async with limiter.lease(tokens=…) as lease`.

        The lease is renewed while the block runs; with `renew=False` it ends after `lease_s`.
        Leaving the block raises LeaseLost if the place was given to others meanwhile.
        """
        options = checked_options(timeout_s, lease_s, head_start_s)
        return LeaseBlock(self.owner(), checked_tokens(tokens), timeout_s, renew=renew, **options)

    async def acquire(
        self,
        *,
        tokens: int = 0,
        timeout_s: float | None = None,
        lease_s: float = 60.0,
        renew: bool = True,
        head_start_s: float = 0.0,
    ) -> Lease:
        """Return a lease; release it yourself. `timeout_s` None waits for ever, 0 not at all.

        `head_start_s` places the call as if it had come so much earlier.
        Raises AcquireTimeout, CostExceedsCapacity or LimiterUnavailable; then nothing is held.
        """
        options = checked_options(timeout_s, lease_s, head_start_s)
        return await self.owner().acquire(checked_tokens(tokens), timeout_s, renew=renew, **options)

    async def release(self, lease: Lease, *, tokens: int | None = None) -> None:
        """End a lease; the same as `lease.release`."""
        await lease.release(tokens=tokens)

    async def settle(self, lease: Lease, tokens: int) -> None:
        """Say what a lease has used in total so far; the same as `lease.settle`."""
        await lease.settle(tokens)

    async def release_and_acquire(
        self,
        lease: Lease,
        *,
        used: int | None = None,
        tokens: int = 0,
        timeout_s: float | None = None,
        lease_s: float = 60.0,
        renew: bool = True,
        head_start_s: float = 0.0,
    ) -> Lease:
        """End one lease and return another in one trip; those who wait are served in between."""
        options = checked_options(timeout_s, lease_s, head_start_s)
        final = lease.used if used is None else checked_tokens(used)
        if lease.released:
            raise BadLimits(f"lease: {lease.id} was released already")
        owner = self.owner()
        lease.end()
        owner.leases.pop(lease.id, None)
        try:
            return await owner.acquire(
                checked_tokens(tokens), timeout_s, renew=renew, instead_of=(lease, final), **options
            )
        except BaseException:
            owner.transport.spawn(owner.release(lease, final))  # ended already, as a rule
            raise

    async def throttle(self, *, retry_after_s: float | str | None, fence: int = 0) -> float:
        """Pause every process after a 429; `retry_after_s` as seconds or as the header's text.

        None (no header) is 1 s, above 300 s is cut. `fence` is that of the call that was told so:
        a call granted before a pause that has ended changes nothing. Returns seconds of pause left.
        """
        retry_ms = checked_retry_ms(self.name, retry_after_s)
        owner = self.owner()
        return await owner.simple("throttle", retry_ms, fence, timeout_s=CONTROL_TIMEOUT_S) / 1000

    async def resume(self) -> float:
        """Lift a pause; returns the seconds that were left of it."""
        return await self.owner().simple("resume", timeout_s=CONTROL_TIMEOUT_S) / 1000

    async def configure(self, *, by: str | None = None, **changes: Any) -> Limits:
        """Change limits live, as an operator does; returns them as they are now.

        They survive restarts until the declared limits change or `reset`.
        """
        while True:
            usage, revision = await self._read()
            wanted = changed_limits(usage.limits, changes)
            change = Change("set", by or who(), revision, wanted)
            if checked_code(self.name, await self._change(change)):
                return wanted

    async def reset(self, *, by: str | None = None) -> Limits:
        """Go back to the limits last declared by a program."""
        checked_code(self.name, await self._change(Change("reset", by or who(), -1, self.limits)))
        return (await self._read())[0].limits

    async def _change(self, change: Change) -> int:
        owner = self.owner()
        deadline = owner.loop.time() + CONTROL_TIMEOUT_S
        reply = await owner.transport.call("configure", *change.args(), owner.id, deadline=deadline)
        owner.take(replies.read_rides(reply[1:4]))
        return int(reply[0])

    async def _read(self) -> tuple[Usage, int]:
        owner = self.owner()
        deadline = owner.loop.time() + CONTROL_TIMEOUT_S
        reply = await owner.transport.call("usage", deadline=deadline)
        usage = read_usage(self.name, reply)
        return usage, usage.revision

    async def usage(self) -> Usage:
        """Return how the limit stands; reads, never writes."""
        return (await self._read())[0]

    async def history(self) -> list[Minute]:
        """Return what happened in each minute of the last hour."""
        usage = await self.usage()
        transport = self.owner().transport
        return read_history(await transport.client.hgetall(transport.keys.history), usage)

    async def close(self) -> None:
        """End the owner of the running loop, and the sync face; harmless when done twice.

        Its waiters get LimiterClosed and its leases are released.
        """
        self._closed = True
        owner = self._owners.pop(id(asyncio.get_running_loop()), None)
        if owner is not None and owner.pid == os.getpid():
            await owner.close()
        self.sync.close()

    async def __aenter__(self) -> Limiter:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
