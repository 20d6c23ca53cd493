"""Messages between a worker and its helpers: a length, then msgpack; never pickle."""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgpack
import numpy as np

from queue_client.trajectory import Output

HEADER = struct.Struct(">I")
#: What a helper may send at once; what runs in it may have been taken over by its input.
MAX_REPLY = 64 << 20
_ARRAY, _BIG_INTEGER, _OUTPUT, _TUPLE = 1, 2, 3, 4


class FrameError(ValueError):
    """What arrived is no frame: the helper is broken."""


def pack(message: Any) -> bytes:
    """Encode one message with its length in front. Raises TypeError for what is not data."""
    body: bytes = msgpack.packb(
        message, default=_encode, unicode_errors="surrogatepass", strict_types=True
    )
    return HEADER.pack(len(body)) + body


def unpack(body: bytes | bytearray | memoryview) -> Any:
    """Decode one body. Raises FrameError."""
    try:
        return msgpack.unpackb(
            body, ext_hook=_decode, strict_map_key=False, unicode_errors="surrogatepass"
        )
    except Exception as error:
        raise FrameError(f"not a frame: {error}") from None


def receive(channel: socket.socket) -> Any:
    """Read one message, blocking; None once the other side has closed."""
    header = _exactly(channel, HEADER.size)
    body = _exactly(channel, HEADER.unpack(header)[0]) if header is not None else None
    return None if body is None else unpack(body)


def _exactly(channel: socket.socket, size: int) -> bytearray | None:
    buffer = bytearray(size)
    view, at = memoryview(buffer), 0
    while at < size:
        got = channel.recv_into(view[at:])
        if not got:
            return None
        at += got
    return buffer


def _encode(value: Any) -> Any:
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, _body(list(value)))
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        shape = list(value.shape)
        return msgpack.ExtType(_ARRAY, _body([value.dtype.str, shape, value.tobytes()]))
    if isinstance(value, Output):
        fields = [value.prompt_ids, value.response_ids, value.response_mask, value.text]
        return msgpack.ExtType(_OUTPUT, _body([*fields, value.position_ids]))
    if isinstance(value, int):
        return msgpack.ExtType(_BIG_INTEGER, str(value).encode())
    return _plainer(value)


def _plainer(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list | set | frozenset):
        return list(value)
    if hasattr(value, "detach"):  # a torch tensor
        return _encode(value.detach().cpu().numpy())
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "items"):
        return dict(value.items())
    raise TypeError(f"a {type(value).__name__} cannot be sent to a helper process")


def _body(value: Any) -> bytes:
    return pack(value)[HEADER.size :]


def _decode(code: int, data: bytes) -> Any:
    if code == _TUPLE:
        return tuple(unpack(data))
    if code == _ARRAY:
        dtype, shape, raw = unpack(data)
        return np.frombuffer(raw, dtype=np.dtype(dtype)).reshape(shape).copy()
    if code == _OUTPUT:
        return Output(*unpack(data))
    if code == _BIG_INTEGER:
        return int(data)
    raise FrameError(f"unknown extension {code}")
