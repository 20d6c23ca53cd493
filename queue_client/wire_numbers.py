"""Arrays on the wire: whole numbers in the fewest bits that hold them.

A vector is `[code, bytes]`, its length follows from the bytes; a tensor is
`[dtype, shape, code, bytes]`, where `dtype` is what it becomes and `code` how it travels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import WireError

#: How elements travel, little-endian: code -> bits an element. u17, u18 and u24 are two planes:
#: the low 16 bits of all elements, then the bits above them.
_BITS = {"u8": 8, "u16": 16, "u17": 17, "u18": 18, "u24": 24, "i8": 8, "i16": 16, "i32": 32}
_BITS |= {"i64": 64, "f16": 16, "f32": 32, "f64": 64}
_HIGH_BITS = {"u17": 1, "u18": 2, "u24": 8}
_DTYPES = {
    code: np.dtype(f"<{code[0]}{bits // 8}")
    for code, bits in _BITS.items()
    if code not in _HIGH_BITS
}
_INTEGER_CODES = frozenset(code for code in _BITS if code[0] in "ui")
#: What a tensor may become.
TENSOR_DTYPES = frozenset(
    {"bool", "uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"}
    | {"float16", "float32", "float64"}
)
MAX_ELEMENTS = 1 << 28
_UNSIGNED = tuple((code, 1 << bits) for code, bits in _BITS.items() if code[0] == "u")
_SIGNED = (("i8", 1 << 7), ("i16", 1 << 15), ("i32", 1 << 31))


def pack_vector(values: NDArray[Any]) -> list[Any]:
    """Return whole numbers [n] as `[code, bytes]` in the narrowest type that holds them all."""
    code = _narrowest(values)
    if code in _HIGH_BITS:
        return [code, _pack_planes(values, _HIGH_BITS[code])]
    return [code, values.astype(_DTYPES[code], copy=False).tobytes()]


def unpack_vector(packed: Any, name: str, *, length: int | None = None) -> NDArray[Any]:
    """Return whole numbers [n]: int32 where they fit by type, else int64.

    Raises WireError that names `name` for an unknown code or a wrong length.
    """
    if type(packed) is not list or len(packed) != 2:
        raise WireError(f"{name} is no vector of code and bytes")
    code, data = packed
    if type(code) is not str or code not in _INTEGER_CODES:
        raise WireError(f"{name} has no known integer type")
    count = _count(code, data, name)
    if length is not None and count != length:
        raise WireError(f"{name} has {count} elements, expected {length}")
    if code in _HIGH_BITS:
        return _unpack_planes(data, count, _HIGH_BITS[code])
    return np.frombuffer(data, _DTYPES[code]).astype(np.int64 if code == "i64" else np.int32)


def pack_tensor(values: NDArray[Any]) -> list[Any]:
    """Return an array of any shape as `[dtype, shape, code, bytes]`."""
    dtype = values.dtype.name
    if dtype not in TENSOR_DTYPES:
        raise TypeError(f"dtype {dtype} does not travel")
    if dtype == "bool":
        code, data = "u8", values.astype(np.uint8).tobytes()
    elif values.dtype.kind in "iu":
        code, data = pack_vector(values.reshape(-1))
    else:
        code = f"f{8 * values.dtype.itemsize}"
        data = values.astype(_DTYPES[code], copy=False).tobytes()
    return [dtype, list(values.shape), code, data]


def unpack_tensor(packed: Any, name: str) -> NDArray[Any]:
    """Return the array, read-only; raises WireError where dtype, shape and size disagree."""
    if type(packed) is not list or len(packed) != 4:
        raise WireError(f"{name} is no tensor of dtype, shape, code and bytes")
    dtype, shape, code, data = packed
    if type(dtype) is not str or dtype not in TENSOR_DTYPES:
        raise WireError(f"{name} has no known dtype")
    if type(code) is not str or code not in _BITS:
        raise WireError(f"{name} has no known type code")
    if (code[0] == "f") is not dtype.startswith("float"):
        raise WireError(f"{name} is {dtype} but travels as {code}")
    if (
        type(shape) is not list
        or not 1 <= len(shape) <= 4
        or any(type(side) is not int or not 0 <= side <= MAX_ELEMENTS for side in shape)
    ):
        raise WireError(f"{name} has no valid shape")
    count = _count(code, data, name)
    if math.prod(shape) != count:
        raise WireError(f"{name} has {count} elements, its shape says {math.prod(shape)}")
    flat: NDArray[Any]
    if code[0] == "f":
        flat = np.frombuffer(data, _DTYPES[code])
    else:
        flat = unpack_vector([code, data], name)
    array = flat.astype(dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _count(code: str, data: Any, name: str) -> int:
    if type(data) is not bytes:
        raise WireError(f"{name} has no bytes")
    count = 8 * len(data) // _BITS[code]
    if _bytes(code, count) != len(data):
        raise WireError(f"{name} has {len(data)} bytes, no whole number of {code} elements")
    if count > MAX_ELEMENTS:
        raise WireError(f"{name} has {count} elements, at most {MAX_ELEMENTS} are read")
    return count


def _bytes(code: str, count: int) -> int:
    """Return how many bytes `count` elements take; the plane of high bits ends on a whole byte."""
    if code in _HIGH_BITS:
        return 2 * count + (_HIGH_BITS[code] * count + 7) // 8
    return _BITS[code] // 8 * count


def _narrowest(values: NDArray[Any]) -> str:
    if not values.size:
        return "u8"
    low, high = int(values.min()), int(values.max())
    if low >= 0:
        for code, bound in _UNSIGNED:
            if high < bound:
                return code
    for code, bound in _SIGNED:
        if -bound <= low and high < bound:
            return code
    return "i64"


def _pack_planes(values: NDArray[Any], bits: int) -> bytes:
    """Return the low two bytes of all values, then the `bits` above them of all."""
    count = values.size
    packed = np.zeros(2 * count + (bits * count + 7) // 8, np.uint8)
    packed[: 2 * count].view("<u2")[:] = values & 0xFFFF
    high = (values >> 16).astype(np.uint8)
    plane = packed[2 * count :]
    for shift in range(0, 8, bits):
        part = high[shift // bits :: 8 // bits]
        plane[: len(part)] |= part << shift
    return packed.tobytes()


def _unpack_planes(data: bytes, count: int, bits: int) -> NDArray[np.int32]:
    plane = np.frombuffer(data, np.uint8, offset=2 * count)
    values = np.empty(count, np.int32)
    for shift in range(0, 8, bits):
        part = values[shift // bits :: 8 // bits]
        part[:] = (plane[: len(part)] >> shift) & ((1 << bits) - 1)
    values <<= 16
    values |= np.frombuffer(data, "<u2", count)
    return values
