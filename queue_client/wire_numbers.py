"""Arrays on the wire: whole numbers in the narrowest type, three bytes included.

A vector is `[code, bytes]`, its length follows from the bytes; a tensor is
`[dtype, shape, code, bytes]`, where `dtype` is what it becomes and `code` how it travels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import WireError

#: How elements travel, little-endian: code -> bytes an element.
_SIZES = {"u1": 1, "u2": 2, "u3": 3, "i1": 1, "i2": 2, "i4": 4, "i8": 8, "f2": 2, "f4": 4, "f8": 8}
_DTYPES = {code: np.dtype("<" + code) for code in _SIZES if code != "u3"}
_INTEGER_CODES = frozenset(code for code in _SIZES if code[0] in "ui")
#: What a tensor may become.
TENSOR_DTYPES = frozenset(
    {"bool", "uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"}
    | {"float16", "float32", "float64"}
)
MAX_ELEMENTS = 1 << 28
_UNSIGNED = (("u1", 1 << 8), ("u2", 1 << 16), ("u3", 1 << 24))
_SIGNED = (("i1", 1 << 7), ("i2", 1 << 15), ("i4", 1 << 31))


def pack_vector(values: NDArray[Any]) -> list[Any]:
    """Return whole numbers [n] as `[code, bytes]` in the narrowest type that holds them all."""
    code = _narrowest(values)
    if code == "u3":
        return [code, _three_bytes(values)]
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
    if code == "u3":
        return _from_three_bytes(data, count)
    return np.frombuffer(data, _DTYPES[code]).astype(np.int64 if code == "i8" else np.int32)


def pack_tensor(values: NDArray[Any]) -> list[Any]:
    """Return an array of any shape as `[dtype, shape, code, bytes]`."""
    dtype = values.dtype.name
    if dtype not in TENSOR_DTYPES:
        raise TypeError(f"dtype {dtype} does not travel")
    if dtype == "bool":
        code, data = "u1", values.astype(np.uint8).tobytes()
    elif values.dtype.kind in "iu":
        code, data = pack_vector(values.reshape(-1))
    else:
        code = f"f{values.dtype.itemsize}"
        data = values.astype(_DTYPES[code], copy=False).tobytes()
    return [dtype, list(values.shape), code, data]


def unpack_tensor(packed: Any, name: str) -> NDArray[Any]:
    """Return the array, read-only; raises WireError where dtype, shape and size disagree."""
    if type(packed) is not list or len(packed) != 4:
        raise WireError(f"{name} is no tensor of dtype, shape, code and bytes")
    dtype, shape, code, data = packed
    if type(dtype) is not str or dtype not in TENSOR_DTYPES:
        raise WireError(f"{name} has no known dtype")
    if type(code) is not str or code not in _SIZES:
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
    count, rest = divmod(len(data), _SIZES[code])
    if rest:
        raise WireError(f"{name} has {len(data)} bytes, no multiple of {_SIZES[code]}")
    if count > MAX_ELEMENTS:
        raise WireError(f"{name} has {count} elements, at most {MAX_ELEMENTS} are read")
    return count


def _narrowest(values: NDArray[Any]) -> str:
    if not values.size:
        return "u1"
    low, high = int(values.min()), int(values.max())
    if low >= 0:
        for code, bound in _UNSIGNED:
            if high < bound:
                return code
    for code, bound in _SIGNED:
        if -bound <= low and high < bound:
            return code
    return "i8"


def _three_bytes(values: NDArray[Any]) -> bytes:
    wide = np.ascontiguousarray(values, dtype="<i4").view(np.uint8)
    packed = np.empty(3 * values.size, np.uint8)
    for place in range(3):
        packed[place::3] = wide[place::4]
    return packed.tobytes()


def _from_three_bytes(data: bytes, count: int) -> NDArray[np.int32]:
    packed = np.frombuffer(data, np.uint8)
    values = np.zeros(count, "<i4")
    wide = values.view(np.uint8)
    for place in range(3):
        wide[place::4] = packed[place::3]
    return values.astype(np.int32, copy=False)
