"""One wire message: a msgpack array `[version, type, body...]`, bounded while it is read.

No pickle, no object hooks. Besides msgpack's own types one extension exists: code 1, an integer
beyond 64 bits, big-endian two's complement.
"""

from __future__ import annotations

from typing import Any, cast

import msgpack

from queue_client.errors import WireError, WireVersionError
from queue_client.plain import simplify

VERSION = 1
#: Longer payloads are not read unless the caller allows more.
MAX_BYTES = 1 << 28
#: Up to this size false lengths cannot allocate more than some megabytes: nothing is walked first.
TINY_BYTES = 1 << 11
#: Up to this size nobody counts what a payload holds: a map of one byte takes 72 bytes of memory.
SMALL_BYTES = 1 << 20
MAX_CONTAINERS = 1 << 20
_BIG_INT = 1
_MAX_INT_BYTES = 4096


def pack(value: Any) -> bytes:
    """Return msgpack bytes of a plain value; numpy and torch values become lists and numbers.

    Raises TypeError, ValueError or OverflowError for what has no plain form.
    """
    return cast(bytes, msgpack.packb(value, default=_default, unicode_errors="surrogatepass"))


def unpack(data: bytes | memoryview, *, max_bytes: int = MAX_BYTES) -> Any:
    """Return the plain value of msgpack bytes; long ones are walked before anything is built.

    Raises WireError for truncated, surplus, too deep or too long input and for unknown extensions.
    """
    if len(data) > max_bytes:
        raise WireError(f"payload has {len(data)} bytes, at most {max_bytes} are read")
    try:
        if len(data) > TINY_BYTES:
            _walk(data, max_bytes)
        return msgpack.unpackb(
            data,
            ext_hook=_extension,
            timestamp=1,
            unicode_errors="surrogatepass",
            **_counting(len(data)),
        )
    except WireError:
        raise
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"payload is no msgpack this version reads: {_reason(error)}") from None


def pack_message(kind: str, *body: Any) -> bytes:
    """Return `[version, kind, *body]` as bytes."""
    return pack([VERSION, kind, *body])


def unpack_message(data: bytes, kind: str, *, max_bytes: int = MAX_BYTES) -> list[Any]:
    """Return the body of a message of this kind; raises WireError for any other.

    WireVersionError, if it has the number of another version.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise WireError(f"payload is {type(data).__name__}, not bytes")
    message = unpack(data, max_bytes=max_bytes)
    if type(message) is not list or len(message) < 2:
        raise WireError("payload is no message: an array of version, type and body is expected")
    version, found = message[0], message[1]
    if type(version) is not int or version != VERSION:
        fault = WireVersionError if type(version) is int else WireError
        raise fault(
            f"payload has wire version {_shown(version)}, this side reads {VERSION}: "
            "run the same release on producers and workers"
        )
    if found != kind or type(found) is not str:
        raise WireError(f"payload is a message of type {_shown(found)}, expected {kind!r}")
    return message[2:]


def _walk(data: bytes | memoryview, max_bytes: int) -> None:
    """Step over the value without building it, so that no false length allocates anything."""
    walker = msgpack.Unpacker(max_buffer_size=max_bytes)
    walker.feed(data)
    walker.skip()
    if walker.tell() != len(data):
        raise msgpack.ExtraData(None, memoryview(data)[walker.tell() :])


def _counting(size: int) -> dict[str, Any]:
    """Return hooks that refuse a large payload of countless tiny lists and maps."""
    if size <= SMALL_BYTES:
        return {}
    left = MAX_CONTAINERS + size // 16

    def count(built: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise WireError(f"payload of {size} bytes holds too many lists and maps")
        return built

    return {"list_hook": count, "object_hook": count}


def _default(value: Any) -> Any:
    if isinstance(value, int):
        size = value.bit_length() // 8 + 1
        if size > _MAX_INT_BYTES:
            raise TypeError(f"an integer of {size} bytes, at most {_MAX_INT_BYTES} travel")
        return msgpack.ExtType(_BIG_INT, value.to_bytes(size, "big", signed=True))
    return simplify(value)


def _extension(code: int, data: bytes) -> int:
    if code != _BIG_INT or not 0 < len(data) <= _MAX_INT_BYTES:
        raise WireError(f"payload has an unknown extension: code {code}, {len(data)} bytes")
    return int.from_bytes(data, "big", signed=True)


def _reason(error: Exception) -> str:
    said = str(error)
    if isinstance(error, msgpack.OutOfData) or "incomplete input" in said or "exceeds max" in said:
        return "truncated"
    if isinstance(error, msgpack.ExtraData):
        return f"{len(error.extra)} surplus bytes"
    if isinstance(error, msgpack.StackError):
        return "nested too deep"
    return f"{type(error).__name__}: {said}"[:200]


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float) else type(value).__name__
