"""The limiter's rules in plain Python: lists, dicts and whole numbers, nothing packed or cached.

The scripts must answer every call exactly as this does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from limiter.limits import Limits

UNIT = 60_000
SILENT_MS = 12_000
HANDOFFS_MAX = 16


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass
class Bucket:
    """One bucket; `rate` None is unlimited, 0 closed."""

    rate: int | None
    capacity: int
    top: int
    level: int = 0
    back: int = 0  # requests given back so far, for the bound on a level's height

    def refill(self, passed: int) -> None:
        if self.rate:
            self.level = min(self.top, self.level + self.rate * passed)


@dataclass
class Held:
    fence: int
    charged: int
    base: int
    granted: int
    expiry: int


@dataclass
class Waiter:
    id: str
    owner: str
    cost: int
    lease: int
    hold: int
    deadline: int
    since: int
    order: int


@dataclass
class Generation:
    """Charges whose highest level since is kept together; `fence` is its first one."""

    fence: int = 0
    open: int = 0
    high: int = 0


@dataclass
class Answer:
    """What a call returns: its value, and what it tells the caller and others."""

    value: tuple = ()
    handed: list[tuple[str, int, int]] = field(default_factory=list)
    letters: list[tuple[str, str, str, int]] = field(default_factory=list)  # owner, kind, id, value


class Model:
    """One limit."""

    def __init__(self, limits: Limits, clock_ms: int) -> None:
        self.declared = self.limits = limits
        self.leases: dict[str, Held] = {}
        self.ended: dict[str, tuple[int, int]] = {}  # id -> 0 ended or -1 expired, when
        self.queue: list[Waiter] = []
        self.seen: dict[str, int] = {}
        self.clock = clock_ms
        self.born()

    # --- state ---

    def born(self) -> None:
        """What a missing state reads as."""
        self.last, self.offset = self.clock, 0
        held = [lease.fence for lease in self.leases.values()]
        self.epoch = self.fence = max([self.clock * 1000, *held])
        self.pause = self.pause_fence = 0
        self.requests, self.tokens = self._buckets(self.limits)
        self.requests.level, self.tokens.level = self.requests.capacity, self.tokens.capacity
        self.old, self.new = Generation(), Generation()
        self.floor = self.epoch
        self.order = max([self.clock * 1000, *(waiter.order for waiter in self.queue)])
        self.refusals = self.reclaimed = self.waits = self.wait_ms = 0

    def wiped(self) -> None:
        """Redis lost all its data; the limits are declared again."""
        self.leases, self.ended, self.queue, self.seen = {}, {}, [], {}
        self.limits = self.declared
        self.born()

    @staticmethod
    def _buckets(limits: Limits) -> tuple[Bucket, Bucket]:
        buckets = []
        for limit in (limits.rpm, limits.tpm):
            if limit is None:
                buckets.append(Bucket(None, 0, 0))
                continue
            whole = max(1, limit * limits.burst_ms // 60_000)
            if limit == 0:
                buckets.append(Bucket(0, UNIT, UNIT))
            elif limits.strict:
                buckets.append(Bucket(limit + 1 - whole, whole * UNIT, limit * UNIT))
            else:
                buckets.append(Bucket(limit, whole * UNIT, whole * UNIT))
        buckets[0].top = buckets[0].capacity
        return buckets[0], buckets[1]

    def begin(self, clock_ms: int) -> None:
        """Logical time goes on; leases whose time has come expire."""
        self.clock = clock_ms
        now = clock_ms + self.offset
        if now < self.last:
            self.offset += self.last - now
            now = self.last
        self.now = now
        self.requests.refill(now - self.last)
        self.tokens.refill(now - self.last)
        self.last = now
        self._mark()
        for call_id in [i for i, held in self.leases.items() if held.expiry <= now]:
            self._finish(call_id, -1)
            self.reclaimed += 1
        self.answer = Answer()

    def _mark(self) -> None:
        level = min(self.tokens.level, self.tokens.capacity)
        self.old.high, self.new.high = max(self.old.high, level), max(self.new.high, level)

    # --- buckets ---

    def impossible(self, cost: int) -> int | None:
        if not self.tokens.rate:
            return None
        if cost > self.limits.tpm:
            return self.limits.tpm
        if self.limits.oversize == "error" and cost * UNIT > self.tokens.capacity:
            return self.tokens.capacity // UNIT
        return None

    def blocked(self, cost: int) -> tuple[int, int]:
        """How long until the cost fits (-1 unknown), and the layers that say no."""
        waits, layers = [0], 0
        if self.pause > self.now:
            waits.append(self.pause - self.now)
            layers += 8
        most = self.limits.max_concurrent
        if most is not None and len(self.leases) >= most:
            layers += 1
            expiries = sorted(held.expiry for held in self.leases.values())
            waits.append(expiries[len(expiries) - most] - self.now if most else -1)
        if self.requests.rate is not None and (
            self.requests.rate == 0 or self.requests.level < UNIT
        ):
            layers += 2
            rate, missing = self.requests.rate, UNIT - self.requests.level
            waits.append(ceil_div(missing, rate) if rate else -1)
        if self.tokens.rate is not None:
            need = cost * UNIT
            if not self.limits.strict:
                need = min(need, self.tokens.capacity)
            if self.tokens.rate == 0 or self.tokens.level < need:
                layers += 4
                rate = self.tokens.rate
                waits.append(ceil_div(need - self.tokens.level, rate) if rate else -1)
        return (-1 if -1 in waits else max(waits)), layers

    def _charge(self, cost: int) -> int:
        if self.tokens.rate is not None:
            level = min(self.tokens.level, self.tokens.capacity)
            self.tokens.level = level - cost * UNIT
            first = Generation(self.fence, 1, self.tokens.level)
            if level >= self.tokens.capacity:
                self.old, self.new = first, Generation()
            elif self.old.fence == 0:
                self.old = first
            elif self.new.fence == 0:
                self.new = first
            else:
                self.new.open += 1
        if self.requests.rate is not None:
            self.requests.level -= UNIT
        return self.requests.level - self.requests.back

    def _refund(self, fence: int, tokens: int) -> None:
        if self.tokens.rate is None:
            return
        high = self.tokens.capacity
        if self.new.fence and fence >= self.new.fence:
            high = self.new.high
        elif self.old.fence and fence >= self.old.fence:
            high = self.old.high
        back = min(tokens * UNIT, self.tokens.capacity - high)
        if back > 0:
            self.tokens.level += back
            self.old.high = min(self.tokens.capacity, self.old.high + back)
            self.new.high = min(self.tokens.capacity, self.new.high + back)

    def _refund_request(self, held: Held) -> None:
        bucket = self.requests
        if bucket.rate is None or held.fence <= self.floor:
            return
        highest = held.base + bucket.back + bucket.rate * (self.now - held.granted)
        back = min(UNIT, bucket.capacity - highest)
        if back > 0:
            bucket.level = min(bucket.capacity, bucket.level + back)
            bucket.back += back

    def _overage(self, tokens: int) -> None:
        if self.tokens.rate is not None:
            self.tokens.level = min(self.tokens.level, self.tokens.capacity) - tokens * UNIT

    # --- leases ---

    def _grant(self, call_id: str, cost: int, lease: int) -> int:
        self.fence += 1
        base = self._charge(cost)
        self.leases[call_id] = Held(self.fence, cost, base, self.now, self.now + lease)
        return self.fence

    def _finish(self, call_id: str, fate: int) -> Held:
        held = self.leases.pop(call_id)
        self.ended[call_id] = (fate, self.now)
        if self.new.fence and held.fence >= self.new.fence:
            self.new.open = max(0, self.new.open - 1)
        elif self.old.fence and held.fence >= self.old.fence:
            self.old.open = max(0, self.old.open - 1)
        if self.old.open <= 0:
            self.old, self.new = self.new, Generation()
            if self.old.open <= 0:
                self.old = Generation()
        return held

    # --- the queue ---

    def waiter(self, call_id: str) -> Waiter | None:
        return next((waiter for waiter in self.queue if waiter.id == call_id), None)

    def _gone(self, waiter: Waiter, caller: str) -> bool:
        if 0 < waiter.deadline <= self.now:
            return True
        seen = self.seen.get(waiter.owner)
        return waiter.owner != caller and (seen is None or self.now - seen >= SILENT_MS)

    def serve(self, caller: str) -> None:
        handoffs = 0
        while self.queue:
            head = self.queue[0]
            largest = self.impossible(head.cost)
            if self._gone(head, caller) or largest:
                self.queue.pop(0)
                self.ended[head.id] = (0, self.now)
                if largest:
                    self.answer.letters.append((head.owner, "x", head.id, largest))
                continue
            if self.blocked(head.cost)[0] != 0 or handoffs == HANDOFFS_MAX:
                return
            self.queue.pop(0)
            lease = min(head.lease, head.hold)
            fence = self._grant(head.id, head.cost, lease)
            handoffs += 1
            self.waits += 1
            self.wait_ms += max(0, self.now - head.since)
            if head.owner == caller:
                self.answer.handed.append((head.id, fence, lease))
            else:
                self.answer.letters.append((head.owner, "g", head.id, fence))

    # --- the verbs ---

    def acquire(
        self, call_id: str, owner: str, cost: int, lease: int, wait: int, hold: int, head_start: int
    ) -> Answer:
        self.answer.value = self._acquire(call_id, owner, cost, lease, wait, hold, head_start)
        return self.answer

    def _acquire(
        self, call_id: str, owner: str, cost: int, lease: int, wait: int, hold: int, head_start: int
    ) -> tuple:
        if self.waiter(call_id):
            self.seen[owner] = self.now
            self.serve(owner)
            waiter = self.waiter(call_id)
            if waiter:
                place = self.queue.index(waiter) + 1
                wait_ms, layers = self.blocked(waiter.cost) if place == 1 else (-1, 16)
                return ("waiting", wait_ms, layers, place)
        if call_id in self.leases:
            held = self.leases[call_id]
            return ("granted", held.fence, held.expiry - self.now)
        if call_id in self.ended:
            return ("ended",)
        largest = self.impossible(cost)
        if largest is not None:
            return ("impossible", largest)
        self.serve(owner)
        empty = not self.queue
        wait_ms, layers = self.blocked(cost)
        if empty and wait_ms == 0:
            return ("granted", self._grant(call_id, cost, lease), lease)
        if not empty:
            wait_ms, layers = -1, layers + 16
        if wait == 0:
            self.refusals += 1
            return ("waiting", wait_ms, layers, 0)
        self.order = max(self.order + 1, self.now * 1000)
        deadline = self.now + wait if wait > 0 else 0
        order = self.order - head_start * 1000
        new = Waiter(call_id, owner, cost, lease, hold, deadline, self.now, order)
        self.queue.append(new)
        self.queue.sort(key=lambda waiter: (waiter.order, waiter.id))
        self.seen[owner] = self.now
        place = self.queue.index(new) + 1
        if place == 1 and not empty:
            wait_ms, layers = self.blocked(cost)
            layers += 16
        if place == 1:
            self.serve(owner)
        return ("waiting", wait_ms if place == 1 else -1, layers, place)

    def release(self, call_id: str, fence: int, used: int, owner: str) -> Answer:
        self.answer.value = (self._release(call_id, fence, used),)
        self.serve(owner)
        return self.answer

    def _release(self, call_id: str, fence: int, used: int) -> int:
        held = self.leases.get(call_id)
        if held is None:
            if call_id in self.ended:
                return self.ended[call_id][0]
            self.ended[call_id] = (0, self.now)
            return 0 if fence <= self.epoch else -1
        if held.fence != fence:
            return -1
        if used > held.charged:
            self._overage(used - held.charged)
        elif used >= 0 and self.limits.refund:
            self._refund(fence, held.charged - used)
        self._finish(call_id, 0)
        return 1

    def exchange(self, old_id: str, old_fence: int, used: int, *call) -> Answer:
        code = self._release(old_id, old_fence, used)
        self.serve(call[1])
        self.answer.value = (code, self._acquire(*call))
        return self.answer

    def settle(self, call_id: str, fence: int, used: int, owner: str) -> Answer:
        held = self.leases.get(call_id)
        if held is None:
            unknown = 0 if fence <= self.epoch else -1
            code = self.ended[call_id][0] if call_id in self.ended else unknown
        else:
            code = 1 if held.fence == fence else -1
            if code == 1 and used > held.charged:
                self._overage(used - held.charged)
                held.charged = used
        self.answer.value = (code,)
        self.serve(owner)
        return self.answer

    def cancel(self, call_id: str, owner: str, timed_out: int) -> Answer:
        code = 0
        waiter = self.waiter(call_id)
        if call_id in self.leases:
            held = self.leases[call_id]
            self._refund(held.fence, held.charged)
            self._refund_request(held)
            self._finish(call_id, 0)
            code = 1
        elif waiter:
            self.queue.remove(waiter)
            self.ended[call_id] = (0, self.now)
            code = 1
        else:
            self.ended.setdefault(call_id, (0, self.now))
        self.refusals += timed_out
        self.answer.value = (code,)
        self.serve(owner)
        return self.answer

    def beat(self, owner: str, held: list[tuple[str, int, int, int]], waiting: list[str]) -> Answer:
        lost = []
        for call_id, fence, cost, lease in held:
            known = self.leases.get(call_id)
            if known and known.fence != fence:
                lost.append(call_id)
            elif known:
                known.expiry = max(known.expiry, self.now + lease)
            elif call_id not in self.ended and fence <= self.epoch:
                self.leases[call_id] = Held(fence, cost, 0, self.now, self.now + lease)
            elif self.ended.get(call_id, (-1,))[0] != 0:
                lost.append(call_id)
        if waiting:
            self.seen[owner] = self.now
        self.serve(owner)
        granted = [
            (i, self.leases[i].fence, self.leases[i].expiry - self.now)
            for i in waiting
            if i in self.leases
        ]
        unknown = [i for i in waiting if i not in self.leases and not self.waiter(i)]
        self.answer.value = (self._next_ms(owner), tuple(lost), tuple(unknown), tuple(granted))
        return self.answer

    def _next_ms(self, owner: str) -> int:
        if not self.queue:
            return -1
        moments = [held.expiry - self.now for held in self.leases.values()]
        head = self.queue[0]
        if head.owner != owner:
            moments.append(max(1, self.seen.get(head.owner, 0) + SILENT_MS - self.now))
        return min(moments, default=-1)

    def throttle(self, retry: int, fence: int, owner: str) -> Answer:
        running = self.pause > self.now
        if retry > 0 and (running or fence == 0 or fence > self.pause_fence):
            if not running:
                self.pause_fence = self.fence
            self.pause = max(self.pause, self.now + retry)
        self.answer.value = (max(0, self.pause - self.now),)
        self.serve(owner)
        return self.answer

    def resume(self, owner: str) -> Answer:
        self.answer.value = (max(0, self.pause - self.now),)
        self.pause = 0
        self.serve(owner)
        return self.answer

    def configure(self, limits: Limits, owner: str) -> Answer:
        """An operator's change, on top of a state that exists."""
        changed = limits.to_wire() != self.limits.to_wire()
        self.answer.value = (int(changed),)
        if changed:
            before = (self.requests, self.tokens)
            after = self._buckets(limits)
            for old, new in zip(before, after, strict=True):
                level = min(old.level, old.capacity)
                if old.capacity == 0:  # it never had a level
                    level = new.capacity
                elif new.rate is None:
                    new.capacity, new.top = old.capacity, 0
                new.level = min(level, new.capacity) if new.capacity else level
                new.back = old.back
            self.limits = limits
            self.requests, self.tokens = after
            if any(
                (old.rate, old.capacity) != (new.rate, new.capacity)
                for old, new in zip(before, after, strict=True)
            ):
                self.old, self.new = Generation(), Generation()
                self.floor = self.fence
                self.requests.back = 0
        self.serve(owner)
        return self.answer
