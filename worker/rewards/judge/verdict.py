"""Reading a judge's verdict: one JSON object with a score in range, or nothing at all.

The text that is judged may hold a verdict of its own, and a judge may quote it. So an object counts
only if it is the whole reply, or begins a line and ends the reply while no other object in the
reply disagrees. Everything else is unparseable, never a pass.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from worker.rewards.errors import Unparseable

LONGEST_CHARS = 65_536  # of a reply; a longer one holds no verdict worth looking for
MOST_OBJECTS = 100
REASON_CHARS = 500

_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(?P<inside>.*?)\n?[ \t]*```", re.DOTALL)
_LINE_START = re.compile(r"^[ \t]*(?:```[A-Za-z]*[ \t]*)?$")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge said: the score, within its range, and why."""

    score: float
    reason: str = ""


def read_verdict(
    reply: str,
    *,
    lowest: float = 0.0,
    highest: float = 1.0,
    key: str = "score",
    nonce: str | None = None,
) -> Verdict:
    """Return the one verdict in a reply; with a `nonce` only one that repeats it.

    >>> read_verdict('{"reason": "same value", "score": 1}')
    Verdict(score=1.0, reason='same value')

    Raises Unparseable, which says what is wrong without the reply's text.
    """
    if len(reply) > LONGEST_CHARS:
        raise Unparseable(f"the judge's reply has {len(reply)} characters, over {LONGEST_CHARS}")
    text = reply.rpartition("</think>")[2].strip()
    if not text:
        raise Unparseable("the judge's reply is empty")
    final = _last_object(text, key)
    if nonce is not None and final.get("nonce") != nonce:
        raise Unparseable("the verdict does not repeat the nonce it was asked for")
    score = _score(final[key], lowest, highest)
    reason = final.get("reason")
    return Verdict(score, reason[:REASON_CHARS] if isinstance(reason, str) else "")


def _last_object(text: str, key: str) -> dict[str, Any]:
    found = _objects(text, key)
    if not found:
        raise Unparseable(f"the judge's reply holds no JSON object with a {key}")
    start, end, final = found[-1]
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if not _LINE_START.match(line) or text[end:].strip(" \t\n`"):
        raise Unparseable("the judge's reply does not end in its verdict")
    if any(other[key] != final[key] for _, _, other in found):
        raise Unparseable(f"the judge's reply holds more than one {key}")
    return final


def _objects(text: str, key: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Every JSON object with the key, in order; what stands inside another is part of it."""
    found = []
    decoder = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    at = text.find("{")
    tries = 0
    while at >= 0:
        tries += 1
        if tries > MOST_OBJECTS:
            raise Unparseable("the judge's reply holds too many braces")
        end = at + 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and key in value:
            found.append((at, end, value))
        at = text.find("{", end)
    return found


def _score(value: Any, lowest: float, highest: float) -> float:
    if not isinstance(value, bool | int | float):
        raise Unparseable("the verdict's score is not a number")
    score = float(value) if abs(value) < 1e300 else math.inf
    if not lowest <= score <= highest:
        raise Unparseable(f"the verdict's score is outside {lowest:g} to {highest:g}")
    return score


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
