"""Random histories: the real scripts on a real server under a test clock, beside the model."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
from limiter_model import UNIT, Answer, Model

from limiter import replies
from limiter.keys import Keys
from limiter.limits import Limits
from limiter.scripts import VERBS, assemble

READS_TIME = "redis.call('TIME')"
TEST_TIME = "test_time"
OWNERS = ("ann", "bob", "cyd")
REMEMBERED_MS = 55_000  # ids that ended longer ago may be forgotten any moment: left alone
START_MS = 1_790_000_000_000

#: A verb under a test clock (the two last arguments), and a look at what it left: what the state
#: counts, what the keys hold, how many lack an expiry, all letters.
UNDER_TEST = """
local test_us, test_s = table.remove(ARGV), table.remove(ARGV)
local test_time = { test_s, test_us }
local function verb()
%s
end
local reply = verb()
local state = redis.call('GET', KEYS[1]) or '0 0 0 0 0 0 0 0'
local waiting, flying = string.match(state, '^(%%d+) %%d+ %%d+ %%d+ %%d+ %%d+ %%d+ (%%d+)')
local lasting = 0
for i = 1, 7 do
  if i ~= 6 and redis.call('PTTL', KEYS[i]) == -1 then lasting = lasting + 1 end
end
local mail = {}
for i = 8, #KEYS do
  local letters = redis.call('LRANGE', KEYS[i], 0, -1)
  if letters[1] then
    if redis.call('PTTL', KEYS[i]) == -1 then lasting = lasting + 1 end
    redis.call('DEL', KEYS[i])
  end
  mail[i - 7] = letters
end
return { reply, tonumber(waiting), tonumber(flying), redis.call('ZCOUNT', KEYS[4], '-inf', '(inf'),
  redis.call('ZCOUNT', KEYS[2], '-inf', '(1e15'), redis.call('HLEN', KEYS[3]), lasting, mail }
"""


@dataclass(slots=True)
class Grant:
    """For the bound: when a call was granted, and what it came to (at most its reservation)."""

    at: int
    tokens: int
    requests: int = 1


class History:
    """One limit under one random history; `run` raises AssertionError at the first difference."""

    def __init__(
        self,
        client: redis.Redis,
        seed: int,
        *,
        alter: Callable[[str, str], str] = lambda verb, text: text,
        name: str = "model",
    ) -> None:
        self.client, self.random = client, random.Random(seed)
        self.seed = seed
        self.keys = Keys.of(f"{name}-{seed}")
        mail = (self.keys.mail(owner) for owner in OWNERS)
        self.all_keys = (*self.keys.all, *mail)
        self.texts = {
            verb: UNDER_TEST % alter(verb, assemble(verb).replace(READS_TIME, TEST_TIME))
            for verb in VERBS
        }
        self.shas = {verb: client.script_load(text) for verb, text in self.texts.items()}
        self.clock = START_MS + self.random.randrange(1_000_000)
        self.limits = self._random_limits()
        self.model = Model(self.limits, self.clock)
        self.count = 0
        self.costs: dict[str, tuple[str, int, int, int]] = {}  # id -> owner, cost, lease, hold
        self.fences: dict[str, int] = {}
        self.told: dict[str, int] = {}
        self.grants: dict[str, Grant] = {}
        self.segment: list[Grant] = []
        self.declare()
        self.both("resume", (OWNERS[0],))

    # --- the server ---

    def declare(self) -> None:
        self.call("configure", "declare", "test", -1, *self.limits.to_wire(), "-")

    def call(self, verb: str, *args: Any) -> tuple[Any, list[Any]]:
        """Run one script at the present clock; returns its reply and what it left."""
        keys = self.all_keys
        args = (len(keys), *keys, *args, self.clock // 1000, self.clock % 1000 * 1000)
        try:
            reply, *seen = self.client.execute_command("EVALSHA", self.shas[verb], *args)
        except redis.exceptions.NoScriptError:
            reply, *seen = self.client.execute_command("EVAL", self.texts[verb], *args)
        return reply, seen

    # --- one history ---

    def run(self, steps: int) -> None:
        for step in range(steps):
            try:
                self._step()
            except AssertionError as error:
                raise AssertionError(f"seed {self.seed}, step {step}: {error}") from None
        self.client.delete(*self.all_keys)

    def _step(self) -> None:
        self._advance()
        choice = self.random.random()
        for share, act in ACTS:
            choice -= share
            if choice < 0:
                act(self)
                return

    def _advance(self) -> None:
        draw = self.random.random()
        if draw < 0.75:
            self.clock += self.random.randrange(400)
        elif draw < 0.95:
            self.clock += self.random.randrange(4_000)
        elif draw < 0.98:
            self.clock += self.random.randrange(20_000)
        elif draw < 0.985:
            self.clock += self.random.choice((60_000, 200_000))
        else:
            self.clock -= self.random.choice((500, 5_000, 60_000))

    def both(self, verb: str, args: tuple[Any, ...], *model_args: Any) -> Answer:
        """Run a call on both sides and compare everything."""
        self.model.begin(self.clock)
        self._forget()
        self._shrink(verb, args)
        answer: Answer = getattr(self.model, verb)(*(model_args or args))
        reply, seen = self.call(verb, *args)
        value, rides = _read(verb, reply, args)
        assert value == answer.value, f"{verb}{args}: {value}, the model says {answer.value}"
        handed = [(grant.id, grant.fence, grant.left_ms) for grant in rides.grants]
        assert handed == answer.handed, f"{verb}{args} hands {handed}, not {answer.handed}"
        self._compare_mail(seen[6], answer)
        self._compare_counts(seen)
        self._note(verb, args, answer, rides)
        self._check_promises()
        return answer

    def _shrink(self, verb: str, args: tuple[Any, ...]) -> None:
        """What a call gives back no longer counts against the bound, in this very call."""
        grant = self.grants.get(args[0]) if args else None
        held = self.model.leases.get(args[0]) if args else None
        if grant is None or held is None:
            return
        if verb == "cancel":
            grant.tokens = grant.requests = 0
        elif verb in ("release", "exchange") and held.fence == args[1] and self.model.limits.refund:
            grant.tokens = min(grant.tokens, args[2]) if args[2] >= 0 else grant.tokens

    def _compare_mail(self, mail: list[list[bytes]], answer: Answer) -> None:
        found = []
        for owner, letters in zip(OWNERS, mail, strict=True):
            for raw in letters:
                letter = replies.read_letter(raw)
                if letter.kind == "h":
                    self._tell(letter.id, letter.value)
                else:
                    found.append((owner, letter.kind, letter.id, letter.value))
        assert sorted(found) == sorted(answer.letters), f"letters {found}, not {answer.letters}"

    def _compare_counts(self, seen: list[Any]) -> None:
        waiting, flying, queued, held, calls, lasting, _ = seen
        model = (len(self.model.queue), len(self.model.leases))
        assert (waiting, flying) == (queued, held) == model, f"counted {seen}, the model {model}"
        assert calls <= waiting + flying + 1, f"{calls} records for {waiting} + {flying} calls"
        assert lasting == 0, f"{lasting} keys without an expiry"

    def _tell(self, call_id: str, wait_ms: int) -> None:
        if wait_ms >= 0:
            self.told[call_id] = self.model.now + wait_ms

    def _note(self, verb: str, args: tuple[Any, ...], answer: Answer, rides: replies.Rides) -> None:
        if rides.head:
            self._tell(rides.head, rides.head_wait_ms)
        granted = [(i, fence) for i, fence, _ in answer.handed]
        granted += [(i, fence) for _, kind, i, fence in answer.letters if kind == "g"]
        value = answer.value
        if verb == "exchange":
            value, args = value[1], args[3:]
        if verb in ("acquire", "exchange"):
            if value[0] == "granted":
                granted.append((args[0], value[1]))
            elif value[0] == "waiting" and value[3]:
                self._tell(args[0], value[1])
        for call_id, fence in sorted(granted, key=lambda grant: grant[1]):
            if call_id not in self.fences:
                self.fences[call_id] = fence
                self._count_grant(call_id)

    # --- what must hold whatever the model says ---

    def _count_grant(self, call_id: str) -> None:
        cost = self.costs[call_id][1]
        grant = self.grants[call_id] = Grant(self.model.now, cost)
        self.segment.append(grant)
        limits = self.model.limits
        for rate, capacity, per_minute, size in self._bounds(limits):
            self._check_windows(rate, capacity, per_minute, size, limits.strict)

    def _bounds(self, limits: Limits) -> list[tuple[int, int, int, Callable[[Grant], int]]]:
        found = []
        for limit, bucket, size in (
            (limits.rpm, self.model.requests, lambda grant: grant.requests),
            (limits.tpm, self.model.tokens, lambda grant: grant.tokens),
        ):
            if limit:
                found.append((bucket.rate, bucket.capacity, limit, size))
        return found

    def _check_windows(
        self, rate: int, capacity: int, limit: int, size: Callable[[Grant], int], strict: bool
    ) -> None:
        """Every window that ends with the newest grant."""
        newest = self.segment[-1]
        debt = max(0, size(newest) * UNIT - capacity)
        total = minute = 0
        for grant in reversed(self.segment):
            total += size(grant) * UNIT
            passed = newest.at - grant.at
            most = capacity + debt + rate * passed
            assert total <= most, f"{total} units in {passed} ms, at most {most}"
            if strict and passed < 60_000:
                minute += size(grant)
                assert minute <= limit, f"{minute} within {passed} ms under a strict {limit}"

    def _check_promises(self) -> None:
        model = self.model
        most = model.limits.max_concurrent
        if most is not None and self.lowered is None:
            assert len(model.leases) <= most, f"{len(model.leases)} in flight of {most}"
        elif most is not None:
            assert len(model.leases) <= max(most, self.lowered)
        if self.lowered is not None:
            self.lowered = len(model.leases) if most is None or len(model.leases) > most else None
        if model.queue:
            head = model.queue[0]
            wait_ms, _ = model.blocked(head.cost)
            if wait_ms >= 0:  # its owner was told to ask by then
                told = self.told.get(head.id)
                assert told is not None, f"{head.id} is the head and was told nothing"
                assert told <= model.now + wait_ms, f"{head.id} was told {told - model.now} ms"

    lowered: int | None = None

    # --- what can happen ---

    def new_id(self) -> str:
        self.count += 1
        return f"c{self.count}"

    def owner(self) -> str:
        return self.random.choice(OWNERS)

    def _new_call(self) -> tuple[str, str, int, int, int, int, int]:
        tpm = self.model.limits.tpm
        most = tpm if tpm else 50
        cost = self.random.choice((0, 1, most // 20, most // 4, self.random.randrange(most + 2)))
        if self.random.random() < 0.05:
            cost = most + 1
        lease = self.random.choice((1_000, 5_000, 15_000, 40_000))
        wait = self.random.choice((0, 300, 10_000, 60_000, -1))
        head_start = self.random.choice((0, 0, 0, 0, 5_000))
        call = (self.new_id(), self.owner(), cost, lease, wait, 12_000, head_start)
        self.costs[call[0]] = (call[1], cost, lease, 12_000)
        return call

    def acquire(self) -> None:
        call = self._new_call()
        if call[4] != 0 and len(self.model.queue) > 25:
            call = (*call[:4], 0, *call[5:])
        self.both("acquire", call)
        if self.random.random() < 0.1:  # the reply was lost
            self.both("acquire", call)

    def replay(self) -> None:
        """An id that is held, waiting or ended comes again."""
        known = [*self.model.leases, *(waiter.id for waiter in self.model.queue), *self._ended()]
        known = [call_id for call_id in known if call_id in self.costs]
        if known:
            call_id = self.random.choice(known)
            owner, cost, lease, hold = self.costs[call_id]
            self.both("acquire", (call_id, owner, cost, lease, 5_000, hold, 0))

    def _ended(self) -> list[str]:
        self._forget()
        return list(self.model.ended)

    def _forget(self) -> None:
        """Ids that ended long ago may be forgotten any moment: they are left alone."""
        model = self.model
        now = max(model.last, self.clock + model.offset)
        for call_id in [i for i, (_, at) in model.ended.items() if now - at > REMEMBERED_MS]:
            del model.ended[call_id]

    def _lease(self) -> tuple[str, int]:
        """A lease to end: mostly one that is held, with its own fence."""
        ended = self._ended()
        held = list(self.model.leases)
        if held and (not ended or self.random.random() < 0.85):
            call_id = self.random.choice(held)
            fence = self.model.leases[call_id].fence
            return call_id, fence + (self.random.random() < 0.03)
        if ended:
            call_id = self.random.choice(ended)
            return call_id, self.fences.get(call_id, 1)
        return self.new_id(), self.model.fence

    def _used(self, call_id: str) -> int:
        cost = self.costs.get(call_id, ("", 10))[1]
        return self.random.choice((-1, 0, cost // 2, cost, cost + self.random.randrange(1 + cost)))

    def release(self) -> None:
        call_id, fence = self._lease()
        used = self._used(call_id)
        self.both("release", (call_id, fence, used, self.owner()))
        if self.random.random() < 0.1:
            self.both("release", (call_id, fence, used, self.owner()))

    def exchange(self) -> None:
        call_id, fence = self._lease()
        used = self._used(call_id)
        self.both("exchange", (call_id, fence, used, *self._new_call()))

    def settle(self) -> None:
        call_id, fence = self._lease()
        self.both("settle", (call_id, fence, max(0, self._used(call_id)), self.owner()))

    def cancel(self) -> None:
        draw = self.random.random()
        known = [waiter.id for waiter in self.model.queue]
        if draw < 0.3:
            known = list(self.model.leases)
        elif draw < 0.5:
            known = self._ended()
        if draw > 0.9 or not known:  # it overtakes its own acquire
            call = self._new_call()
            self.both("cancel", (call[0], call[1], 0))
            self.both("acquire", call)
            return
        call_id = self.random.choice(known)
        self.both("cancel", (call_id, self.owner(), self.random.randrange(2)))

    def beat(self) -> None:
        owner = self.owner()
        held = []
        for call_id, lease in self.model.leases.items():
            if self.costs.get(call_id, ("",))[0] == owner:
                held.append((call_id, lease.fence, lease.charged, self.costs[call_id][2]))
        for call_id in self._ended():
            if self.costs.get(call_id, ("",))[0] == owner and self.random.random() < 0.05:
                held.append((call_id, self.fences.get(call_id, 1), 5, 1_000))
        waiting = [waiter.id for waiter in self.model.queue if waiter.owner == owner]
        waiting += [held_id for held_id, *_ in held if self.random.random() < 0.2]
        flat = [part for lease in held for part in lease]
        self.both("beat", (owner, len(held), *flat, *waiting), owner, held, waiting)

    def throttle(self) -> None:
        fences = [0, *(held.fence for held in self.model.leases.values()), self.model.pause_fence]
        retry = self.random.choice((0, 500, 3_000, 20_000))
        self.both("throttle", (retry, self.random.choice(fences), self.owner()))

    def resume(self) -> None:
        self.both("resume", (self.owner(),))

    def configure(self) -> None:
        limits = self.random.choice((self._random_limits(), self.model.limits))
        args = ("set", "test", -1, *limits.to_wire(), owner := self.owner())
        self.lowered = len(self.model.leases)
        if limits != self.model.limits:
            self.segment = []  # other capacities: windows are counted anew
        self.both("configure", args, limits, owner)

    def forget_scripts(self) -> None:
        self.client.script_flush()

    def lose_state(self) -> None:
        self.client.delete(self.keys.all[0])
        self._born_again(self.model.born)

    def lose_everything(self) -> None:
        self.client.flushall()
        self.declare()
        self._born_again(self.model.wiped)

    def _born_again(self, birth: Callable[[], None]) -> None:
        self.lowered = len(self.model.leases)
        self.model.clock = self.clock
        birth()
        self.segment = []
        self.both("resume", (self.owner(),))

    def _random_limits(self) -> Limits:
        draw = self.random
        strict = draw.random() < 0.3
        burst = draw.choice((0.5, 1, 5)) if strict else draw.choice((None, 0.5, 1, 5, 30, 90))
        limits = Limits(
            name=f"model-{self.seed}",
            max_concurrent=draw.choice((None, 1, 2, 3, 5, 8, 8, 8)),
            rpm=draw.choice((None, None, 1, 7, 60, 200, 1000)),
            tpm=draw.choice((None, 3, 100, 1000, 5000, 5000, 90_000)),
            burst_s=burst,
            strict=strict,
            oversize=draw.choice(("alone", "alone", "error")),
            refund=draw.random() < 0.9,
        )
        if draw.random() < 0.03:
            closed = draw.choice(("max_concurrent", "rpm", "tpm"))
            limits = dataclasses.replace(limits, **{closed: 0})
        return limits


ACTS: tuple[tuple[float, Callable[[History], None]], ...] = (
    (0.34, History.acquire),
    (0.06, History.replay),
    (0.24, History.release),
    (0.06, History.exchange),
    (0.05, History.settle),
    (0.07, History.cancel),
    (0.11, History.beat),
    (0.02, History.throttle),
    (0.01, History.resume),
    (0.02, History.configure),
    (0.01, History.forget_scripts),
    (0.004, History.lose_state),
    (0.006, History.lose_everything),
)


def _read(verb: str, reply: Any, args: tuple[Any, ...]) -> tuple[tuple, replies.Rides]:
    if verb == "acquire":
        return _read_acquire(reply, args[3])
    if verb == "exchange":
        value, rides = _read_acquire(reply[1], args[6])
        return (int(reply[0]), value), rides
    if verb == "beat":
        beat = replies.read_beat(reply)
        granted = tuple((grant.id, grant.fence, grant.left_ms) for grant in beat.granted)
        return (beat.next_ms, beat.lost, beat.unknown, granted), beat.rides
    code, rides = replies.read_code(reply)
    return (code,), rides


def _read_acquire(reply: Any, lease_ms: int) -> tuple[tuple, replies.Rides]:
    answer = replies.read_acquire(reply)
    if answer.code == replies.GRANTED:
        plain = not isinstance(reply, list)  # the whole lease
        left_ms = lease_ms if plain else answer.left_ms
        return ("granted", answer.fence, left_ms), answer.rides
    if answer.code == replies.WAITING:
        value = ("waiting", answer.wait_ms, answer.layers, answer.place)
        return value, answer.rides
    if answer.code == replies.ENDED:
        return ("ended",), answer.rides
    return ("impossible", answer.largest), answer.rides
