"""What the scripts answer, read into values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NO_SETTINGS = -9
GRANTED, WAITING, ENDED, IMPOSSIBLE = 1, 0, -1, -2
LAYERS = ((8, "pause"), (1, "concurrency"), (2, "rpm"), (4, "tpm"), (16, "queue"))


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease for one id; `left_ms` is how long it lasts unless a beat extends it."""

    id: str
    fence: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class Rides:
    """What rides in a reply: grants to the caller's waiters, and its head's wait."""

    grants: tuple[Grant, ...] = ()
    head: str = ""
    head_wait_ms: int = -1


NOTHING = Rides()


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an acquire: `code` is GRANTED, WAITING (or refused), ENDED or IMPOSSIBLE."""

    code: int
    fence: int = 0
    left_ms: int = -1
    wait_ms: int = -1
    layers: int = 0
    place: int = 0
    largest: int = 0
    rides: Rides = NOTHING


def text(value: Any) -> str:
    """Return a reply's text, whether the client decodes or not."""
    return value.decode() if isinstance(value, bytes) else str(value)


def lacks_settings(reply: Any) -> bool:
    """Whether a script found no settings and did nothing."""
    first = reply[0] if isinstance(reply, list) and reply else reply
    return bool(first == NO_SETTINGS)


def layer_names(layers: int) -> str:
    """Return the layers that said no, as text for people."""
    return ", ".join(name for bit, name in LAYERS if layers & bit) or "nothing"


def read_grants(flat: list[Any]) -> tuple[Grant, ...]:
    """Read id, fence, left_ms, again and again."""
    return tuple(
        Grant(text(flat[i]), int(flat[i + 1]), int(flat[i + 2])) for i in range(0, len(flat), 3)
    )


def read_rides(reply: list[Any]) -> Rides:
    """Read the three last parts of a list: handed, head, head_wait."""
    handed, head, wait_ms = reply
    return Rides(read_grants(handed), text(head), int(wait_ms)) if handed or head else NOTHING


def read_acquire(reply: Any) -> Answer:
    """Read what limit_acquire.lua returns."""
    if not isinstance(reply, list):
        return Answer(GRANTED, fence=int(reply))
    code = int(reply[0])
    if code == GRANTED:
        rides = read_rides(reply[3:6])
        return Answer(code, fence=int(reply[1]), left_ms=int(reply[2]), rides=rides)
    if code == WAITING:
        return Answer(
            code,
            wait_ms=int(reply[1]),
            layers=int(reply[2]),
            place=int(reply[3]),
            rides=read_rides(reply[4:7]),
        )
    if code == IMPOSSIBLE:
        return Answer(code, largest=int(reply[1]), rides=read_rides(reply[2:5]))
    return Answer(code, rides=read_rides(reply[1:4]))


def read_code(reply: Any) -> tuple[int, Rides]:
    """Read what release, settle, cancel, throttle and resume return."""
    if not isinstance(reply, list):
        return int(reply), NOTHING
    return int(reply[0]), read_rides(reply[1:4])


@dataclass(frozen=True, slots=True)
class Beat:
    """What one beat learned."""

    next_ms: int
    rides: Rides
    lost: tuple[str, ...]
    unknown: tuple[str, ...]
    granted: tuple[Grant, ...]


def read_beat(reply: list[Any]) -> Beat:
    """Read what limit_beat.lua returns."""
    return Beat(
        next_ms=int(reply[0]),
        rides=read_rides(reply[1:4]),
        lost=tuple(map(text, reply[4])),
        unknown=tuple(map(text, reply[5])),
        granted=read_grants(reply[6]),
    )


@dataclass(frozen=True, slots=True)
class Letter:
    """One message from a mailbox: kind g (granted), h (head's wait) or x (impossible)."""

    kind: str
    id: str
    value: int
    left_ms: int = -1


def read_letter(raw: Any) -> Letter:
    """Read `g ID FENCE LEFT`, `h ID WAIT` or `x ID LARGEST`."""
    kind, call_id, value, *rest = text(raw).split()
    return Letter(kind, call_id, int(value), int(rest[0]) if rest else -1)
