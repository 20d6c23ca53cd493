"""Several limits for one call: taken in order of name, all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType

from limiter.errors import BadLimits, LeaseLost
from limiter.lease import Lease, checked_tokens
from limiter.limiter import Limiter


def lease_all(
    *limiters: Limiter,
    tokens: int | Mapping[str, int] = 0,
    timeout_s: float | None = None,
    lease_s: float = 60.0,
) -> LeaseSet:
    """Return a block that holds a lease of every limit: `async with lease_all(a, b) as leases`.

    Taken in order of name, so that two such calls never wait for each other; those taken before one
    that fails are cancelled, as if they had never been. `tokens` is the cost for each, or by name;
    `timeout_s` is for all of them together. The block's value is the leases by name.
    """
    names = [limiter.name for limiter in limiters]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        raise BadLimits(f"limiters: one of each name is needed, got {twice or 'none'}")
    unknown = sorted(set(tokens) - set(names)) if isinstance(tokens, Mapping) else []
    if unknown:
        raise BadLimits(f"tokens: {unknown} are none of {sorted(names)}")
    by_name = tokens if isinstance(tokens, Mapping) else dict.fromkeys(names, tokens)
    costs = {name: checked_tokens(by_name.get(name, 0)) for name in names}
    return LeaseSet(limiters, costs, timeout_s, lease_s)


class LeaseSet:
    """Leases of several limits, by name; an asynchronous context manager."""

    def __init__(
        self,
        limiters: tuple[Limiter, ...],
        costs: Mapping[str, int],
        timeout_s: float | None,
        lease_s: float,
    ) -> None:
        self._limiters = sorted(limiters, key=lambda limiter: limiter.name)
        self._costs, self._timeout_s, self._lease_s = costs, timeout_s, lease_s
        self._held: dict[str, Lease] = {}

    async def __aenter__(self) -> dict[str, Lease]:
        loop = asyncio.get_running_loop()
        end = None if self._timeout_s is None else loop.time() + self._timeout_s
        try:
            for limiter in self._limiters:
                left_s = None if end is None else max(0.0, end - loop.time())
                self._held[limiter.name] = await limiter.acquire(
                    tokens=self._costs[limiter.name], timeout_s=left_s, lease_s=self._lease_s
                )
        except BaseException as error:
            undone = [lease.cancel() for lease in self._held.values()]
            if undone and not isinstance(error, asyncio.CancelledError):
                await asyncio.wait(undone)  # otherwise it goes on by itself
            raise
        return self._held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lost: LeaseLost | None = None
        for lease in reversed(self._held.values()):
            try:
                await lease.release()
            except LeaseLost as loss:
                lost = lost or loss
        if lost is not None and error is None:
            raise lost
