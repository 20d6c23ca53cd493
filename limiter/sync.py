"""The sync face: the caller's thread asks, blocks on a mailbox of its own, and beats in between."""

from __future__ import annotations

import math
import os
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from limiter import faults, replies
from limiter.errors import (
    AcquireTimeout,
    CostExceedsCapacity,
    LeaseLost,
    LimiterClosed,
    LimiterUnavailable,
)
from limiter.lease import SyncLease, checked_tokens
from limiter.limits import Limits
from limiter.options import checked_options, checked_retry_ms
from limiter.replies import Answer
from limiter.sync_transport import SyncTransport
from limiter.transport import (
    CONNECT_TIMEOUT_S,
    SOCKET_TIMEOUT_S,
    logger,
    new_id,
)
from limiter.usage import Usage, read_usage

HOLD_MS = 12_000
BLOCK_S = 2.0
UNDO_PATIENCE_S = 2.0
CONTROL_TIMEOUT_S = 10.0


class SyncTicket:
    """One acquire of a thread."""

    def __init__(
        self, tokens: int, timeout_s: float | None, lease_ms: int, head_start_ms: int
    ) -> None:
        self.id = new_id()
        self.tokens, self.timeout_s = tokens, timeout_s
        self.lease_ms, self.head_start_ms = lease_ms, head_start_ms
        self.deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.layers = 0

    def wait_ms(self) -> int:
        """How long to stand in line: 0 not at all, -1 for ever."""
        if self.timeout_s == 0:
            return 0
        if self.deadline is None:
            return -1
        return max(1, math.ceil((self.deadline - time.monotonic()) * 1000))

    def late(self) -> bool:
        """Whether the caller's time is up, to the millisecond."""
        return self.deadline is not None and time.monotonic() + 0.001 >= self.deadline


class SyncOwner(SyncTransport):
    """What one thread holds and waits for under one limit."""

    # --- acquiring ---

    def acquire(
        self, tokens: int, timeout_s: float | None, lease_ms: int, head_start_ms: int
    ) -> SyncLease:
        """Return a lease, or raise and leave nothing behind."""
        ticket = SyncTicket(tokens, timeout_s, lease_ms, head_start_ms)
        try:
            fence = self._wait(ticket)
        except (CostExceedsCapacity, LimiterClosed):
            raise
        except BaseException as error:
            if not (timeout_s == 0 and isinstance(error, AcquireTimeout)):
                patience_s = 0.0 if isinstance(error, LimiterUnavailable) else UNDO_PATIENCE_S
                self._undo(ticket.id, patience_s, timed_out=isinstance(error, AcquireTimeout))
            raise
        return SyncLease(self, ticket.id, fence, tokens, lease_ms)

    def _wait(self, ticket: SyncTicket) -> int:
        """Ask, block, ask again: the same id gets the same grant. Returns the fence."""
        while True:
            answer = self._ask(ticket)
            if answer.code == replies.IMPOSSIBLE:
                raise CostExceedsCapacity(self.limits.name, ticket.tokens, answer.largest)
            if answer.code == replies.GRANTED:
                if 0 <= answer.left_ms < ticket.lease_ms:
                    self._confirm(ticket, answer.fence)
                return answer.fence
            ticket.layers = answer.layers or ticket.layers
            refused = answer.code == replies.WAITING and answer.place == 0
            if refused or ticket.late():
                retry_s = answer.wait_ms / 1000 if answer.wait_ms >= 0 else None
                names = replies.layer_names(ticket.layers)
                raise AcquireTimeout(self.limits.name, ticket.timeout_s or 0.0, retry_s, names)
            if answer.code == replies.ENDED:  # we were silent for too long
                logger.warning("place in line lost limit=%s", self.limits.name)
                ticket.id = new_id()
            else:
                self._block(ticket, answer.wait_ms)

    def _ask(self, ticket: SyncTicket) -> Answer:
        times = (ticket.lease_ms, ticket.wait_ms(), HOLD_MS, ticket.head_start_ms)
        call = (ticket.id, self.id, ticket.tokens, *times)
        return replies.read_acquire(self.call("acquire", *call, deadline=ticket.deadline))

    def _block(self, ticket: SyncTicket, wait_ms: int) -> None:
        """Wait for a letter about this call, for the promised time, or for two seconds."""
        for_s = BLOCK_S if wait_ms < 0 else min(BLOCK_S, wait_ms / 1000)
        if ticket.deadline is not None:
            for_s = min(for_s, ticket.deadline - time.monotonic())
        until = time.monotonic() + for_s
        key = self.keys.mail(self.id)
        while (left_s := until - time.monotonic()) > 0:
            self.trips += 1
            try:
                reply = self.client.execute_command("BLPOP", key, f"{max(0.001, left_s):.3f}")
            except (redis.RedisError, OSError) as error:
                if not faults.passes(error):
                    raise LimiterUnavailable(self.limits.name, faults.reason(error)) from error
                return
            if reply and replies.read_letter(reply[1]).id == ticket.id:
                return

    def _confirm(self, ticket: SyncTicket, fence: int) -> None:
        """A lease that was handed over lasts its full length from now."""
        deadline = time.monotonic() + UNDO_PATIENCE_S
        held = (ticket.id, fence, ticket.tokens, ticket.lease_ms)
        if replies.read_beat(self.call("beat", self.id, 1, *held, deadline=deadline)).lost:
            raise LimiterUnavailable(self.limits.name, "the lease ended before it was confirmed")

    def _undo(self, call_id: str, patience_s: float, *, timed_out: bool) -> None:
        try:
            deadline = time.monotonic() + patience_s
            self.call("cancel", call_id, self.id, int(timed_out), deadline=deadline)
        except (LimiterUnavailable, LimiterClosed) as error:
            logger.warning("cancel failed limit=%s reason=%s", self.limits.name, error)

    # --- giving back ---

    def release(self, lease: SyncLease, used: int | None) -> None:
        """End a lease; Redis out of reach is logged, the lease expires by itself."""
        if self.closed:
            return
        final = -1 if used is None else used
        try:
            deadline = time.monotonic() + UNDO_PATIENCE_S
            reply = self.call("release", lease.id, lease.fence, final, self.id, deadline=deadline)
        except LimiterUnavailable as error:
            logger.warning(
                "release failed limit=%s lease=%s reason=%s", lease.limit, lease.id, error.reason
            )
            return
        self._check(lease, replies.read_code(reply)[0])

    def settle(self, lease: SyncLease, used: int) -> None:
        """Charge what a held lease has used beyond its reservation."""
        deadline = time.monotonic() + CONTROL_TIMEOUT_S
        reply = self.call("settle", lease.id, lease.fence, used, self.id, deadline=deadline)
        self._check(lease, replies.read_code(reply)[0])

    def renew(self, lease: SyncLease) -> None:
        """Let a lease last its full length from now."""
        deadline = time.monotonic() + CONTROL_TIMEOUT_S
        args = (lease.id, lease.fence, lease.tokens, lease.lease_ms)
        beat = replies.read_beat(self.call("beat", self.id, 1, *args, deadline=deadline))
        self._check(lease, -1 if beat.lost else 1)

    def _check(self, lease: SyncLease, code: int) -> None:
        if code < 0:
            lease.lost = True
            logger.warning("lease lost limit=%s lease=%s", lease.limit, lease.id)
            raise LeaseLost(lease.limit, lease.id)


class SyncLimiter:
    """Leases for threads: `with limiter.sync.lease(tokens=…) as lease`. Each thread is an owner."""

    def __init__(self, url: str, limits: Limits) -> None:
        self.url, self.limits = url, limits
        self._local = threading.local()
        self._lock = threading.Lock()
        self._client: redis.Redis | None = None
        self._pid = 0
        self._owners: list[SyncOwner] = []
        self._closed = False

    @property
    def name(self) -> str:
        """The name of the limit."""
        return self.limits.name

    def owner(self) -> SyncOwner:
        """Return the owner of this thread in this process."""
        owner: SyncOwner | None = getattr(self._local, "owner", None)
        if owner is not None and owner.pid == os.getpid() and not owner.closed:
            return owner
        if self._closed:
            raise LimiterClosed(f"{self.name}: the limiter is closed")
        owner = self._local.owner = SyncOwner(self._connect(), self.limits)
        with self._lock:
            self._owners.append(owner)
        return owner

    def _connect(self) -> redis.Redis:
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._owners = []
                self._pid = os.getpid()
                self._client = redis.Redis.from_url(
                    self.url,
                    socket_timeout=SOCKET_TIMEOUT_S,
                    socket_connect_timeout=CONNECT_TIMEOUT_S,
                    retry=Retry(NoBackoff(), 0),
                )
            return self._client

    def acquire(
        self,
        *,
        tokens: int = 0,
        timeout_s: float | None = None,
        lease_s: float = 60.0,
        head_start_s: float = 0.0,
    ) -> SyncLease:
        """Return a lease; release it yourself. Nobody renews it: let `lease_s` outlast the call."""
        options = checked_options(timeout_s, lease_s, head_start_s)
        return self.owner().acquire(checked_tokens(tokens), timeout_s, **options)

    #: The same: a lease is its own block.
    lease = acquire

    def throttle(self, *, retry_after_s: float | str | None, fence: int = 0) -> float:
        """Pause every process after a 429; returns the seconds of pause left."""
        return self._simple("throttle", checked_retry_ms(self.name, retry_after_s), fence)

    def resume(self) -> float:
        """Lift a pause; returns the seconds that were left of it."""
        return self._simple("resume")

    def _simple(self, verb: str, *args: str | int) -> float:
        owner, deadline = self.owner(), time.monotonic() + CONTROL_TIMEOUT_S
        return replies.read_code(owner.call(verb, *args, owner.id, deadline=deadline))[0] / 1000

    def usage(self) -> Usage:
        """Return how the limit stands; reads, never writes."""
        deadline = time.monotonic() + CONTROL_TIMEOUT_S
        return read_usage(self.name, self.owner().call("usage", deadline=deadline))

    def close(self) -> None:
        """Close the connections of this process."""
        self._closed = True
        with self._lock:
            for owner in self._owners:
                owner.closed = True
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()
