"""AsyncTokenBucket by its old name: tokens that flow in at a rate, taken in order of arrival."""

from __future__ import annotations

import math
from typing import Any

from queue_client.compat.gate import Bucket, Gate
from queue_client.compat.options import above_zero, url_from_environment


class AsyncTokenBucket:
    """`rate_limit` tokens a second, `max_tokens` (one second's worth) at most; full at first.

    `rate` and `capacity` are other spellings of the arguments and attributes, `last_time` of
    `last_update`. An acquire of more than `max_tokens` waits until as many have flowed in. Callers
    are served in order of arrival; one that is cancelled takes nothing. Any event loop will do.
    With a `name` and a Redis address (`redis_url`, or REWARDPOOL_REDIS__URL or REDIS_URL) the
    bucket is shared by every process on every host, else it is this object's.
    Raises ValueError with the argument and the value.
    """

    def __init__(
        self,
        rate_limit: float | None = None,
        max_tokens: float | None = None,
        *,
        rate: float | None = None,
        capacity: float | None = None,
        name: str | None = None,
        redis_url: str | None = None,
    ) -> None:
        self.rate_limit = above_zero("rate_limit", _one("rate_limit", rate_limit, "rate", rate))
        most = _one("max_tokens", max_tokens, "capacity", capacity)
        self.max_tokens = self.rate_limit if most is None else above_zero("max_tokens", most)
        self._index = 0
        self._gate = Gate([Bucket(self.rate_limit, self.max_tokens, accrues=True)])
        self._shared: Any = None
        url = redis_url or (url_from_environment() if name else None)
        if url:
            if not name:
                raise ValueError(
                    f"name: the name of the limit expected beside redis_url (got {name!r})"
                )
            self._shared = _shared_limiter(url, name, self.rate_limit, self.max_tokens)

    @classmethod
    def part_of(cls, gate: Gate, index: int) -> AsyncTokenBucket:
        """A view of one bucket of a gate: what is taken here is missing there."""
        bucket = gate.buckets[index]
        view = cls(bucket.rate, bucket.capacity)
        view._gate, view._index = gate, index
        return view

    async def acquire(self, num_tokens: float = 1.0) -> None:
        """Wait until so many tokens are there, and take them."""
        if isinstance(num_tokens, bool) or not num_tokens >= 0:
            raise ValueError(f"num_tokens: a number of at least 0 expected (got {num_tokens!r})")
        if self._shared is not None:
            await self._acquire_shared(math.ceil(num_tokens))
            return
        costs = [0.0] * len(self._gate.buckets)
        costs[self._index] = num_tokens
        await self._gate.acquire(costs, place=False)

    @property
    def tokens(self) -> float:
        """What was there at the last acquire; of a shared bucket, what is there now."""
        if self._shared is not None:
            return float(self._shared.sync.usage().tpm_level or 0.0)
        return self._gate.level(self._index)

    @tokens.setter
    def tokens(self, tokens: float) -> None:
        self._gate.buckets[self._index].level = tokens

    @property
    def last_update(self) -> float | None:
        """When tokens were last counted, on the loop's clock; None before the first acquire."""
        return self._gate.buckets[self._index].updated

    @last_update.setter
    def last_update(self, instant: float | None) -> None:
        self._gate.buckets[self._index].updated = instant

    rate = property(lambda self: self.rate_limit)
    capacity = property(lambda self: self.max_tokens)
    last_time = last_update

    async def _acquire_shared(self, tokens: int) -> None:
        """Take what is more than the bucket holds piece by piece, so that it waits as it should."""
        most = int(self.max_tokens)
        while True:
            piece = min(tokens, most)
            lease = await self._shared.acquire(tokens=piece)
            await lease.release(tokens=piece)
            tokens -= piece
            if tokens <= 0:
                return

    async def close(self) -> None:
        """Disconnect a shared bucket."""
        if self._shared is not None:
            await self._shared.close()


def _one(name: str, value: float | None, other_name: str, other: float | None) -> float | None:
    if value is not None and other is not None:
        raise ValueError(f"{other_name}: {name} is given already (got {other!r})")
    return other if value is None else value


def _shared_limiter(url: str, name: str, rate: float, most: float) -> Any:
    from limiter import Limiter, Limits

    a_minute = round(rate * 60)
    if abs(a_minute - rate * 60) > 1e-6 or most < 1:
        raise ValueError(
            "rate_limit: a shared bucket needs whole tokens a minute and max_tokens of at least 1 "
            f"(got {rate!r} a second, max_tokens {most!r})"
        )
    return Limiter(url, Limits(name=name, tpm=a_minute, burst_s=most / rate, refund=False))
