"""Turn whatever a job, a judge or an intruder stored into plain JSON of bounded size."""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 20_000  # characters of one text
MAX_ITEMS = 1_000  # entries of one list or mapping
MAX_DEPTH = 12
MAX_INFLATED = 1 << 20  # bytes after decompression
EXACT = 1 << 53  # a browser's numbers are doubles


def plain(value: Any, *, depth: int = MAX_DEPTH) -> Any:
    """Return `value` as JSON a browser reads: no NaN, no bytes, no endless text or nesting."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clipped(value)
    if isinstance(value, int):
        return int(value) if -EXACT <= value <= EXACT else clipped(_digits(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return binary(bytes(value))
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _nested(value, depth)
    return f"<{type(value).__name__}>"


def clipped(value: str, limit: int = MAX_TEXT) -> str:
    """Return text a page can hold; what was cut off is counted."""
    if len(value) <= limit:
        return value.encode("utf-8", "replace").decode()  # lone surrogates break JSON readers
    return value[:limit].encode("utf-8", "replace").decode() + f"… ({len(value) - limit:,} more)"


def binary(value: bytes) -> str:
    """Describe bytes by their number and their beginning."""
    return f"<{len(value):,} bytes: {value[:24].hex(' ')}{'…' if len(value) > 24 else ''}>"


def inflated(value: bytes) -> str:
    """Return text that RQ stored as base64 of zlib, at most MAX_INFLATED bytes of it."""
    try:
        packed = base64.b64decode(value, validate=True)
        unpacked = zlib.decompressobj().decompress(packed, MAX_INFLATED)
    except (binascii.Error, ValueError, zlib.error):
        return f"<undecodable text, {len(value):,} bytes>"
    return clipped(unpacked.decode("utf-8", "replace"))


def _nested(value: Any, depth: int) -> Any:
    if depth <= 0:
        return f"<{type(value).__name__} of {len(value):,}, nested too deeply to show>"
    more = len(value) - MAX_ITEMS
    if isinstance(value, Mapping):
        first = list(value.items())[:MAX_ITEMS]
        shown = {_key(key): plain(item, depth=depth - 1) for key, item in first}
        return shown | ({"…": f"{more:,} more"} if more > 0 else {})
    items = [plain(item, depth=depth - 1) for item in list(value)[:MAX_ITEMS]]
    return [*items, f"… {more:,} more"] if more > 0 else items


def _key(key: Any) -> str:
    shown = plain(key, depth=1)
    return clipped(shown if isinstance(shown, str) else str(shown), 500)


def _digits(value: int) -> str:
    """Python refuses to print integers of more than 4,300 digits."""
    return str(value) if value.bit_length() < 10_000 else f"<integer of {value.bit_length()} bits>"


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
